// What both drivers share: the packages' place, one word a line on stdout, and a gate on stdin.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const require = createRequire(`${process.env.LEASETOP_ENGINES}/node/`)

/** An installed package; the drivers are not beside node_modules, so a plain import would not find it. */
export const load = async (name) => import(pathToFileURL(require.resolve(name)))

/** Tells the test that something has happened. */
export const say = (...words) => process.stdout.write(words.join(' ') + '\n')

/** The lines of stdin, one promise each: a handler that waits for one is as slow as the test wants. */
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const goOn = () => lines.next()

const refuse = () => {
  throw new Error('the card was refused')
}

/** What a job's handler does, by the name that `work` is given; who waits is told on stdin to go on. */
export const handlers = {
  wait: goOn,
  waitfail: () => goOn().then(refuse),
  finish: async () => {},
  fail: async () => refuse(),
}

/** Runs the subcommand that the arguments name, and says how it broke if it did. */
export const main = async (commands) => {
  const [name, ...rest] = process.argv.slice(2)
  try {
    await commands[name](...rest)
  } catch (error) {
    console.error(error)
    process.exitCode = 1
  } finally {
    process.stdin.unref()
    process.stdin.destroy()
  }
}
