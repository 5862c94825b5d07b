// graphile-worker as an application would use it:
// install | enqueue N [SPEC] | work wait|waitfail|finish|fail.

import { handlers, load, main, say } from './common.mjs'

const { Logger, makeWorkerUtils, runOnce } = await load('graphile-worker')
const TASK = 'charge'
// Only what is wrong: each worker logs every job otherwise.
const logger = new Logger(() => (level, message) => level === 'error' && console.error(message))
const options = { connectionString: `postgresql:///${process.env.PGDATABASE}`, logger, noHandleSignals: true }

const withUtils = async (act) => {
  const utils = await makeWorkerUtils(options)
  try {
    await act(utils)
  } finally {
    await utils.release()
  }
}

await main({
  install: () => withUtils((utils) => utils.migrate()),

  enqueue: (count, spec = '{}') =>
    withUtils(async (utils) => {
      const given = JSON.parse(spec, (key, value) => (key === 'runAt' ? new Date(value) : value))
      for (let n = 0; n < Number(count); n++) say('enqueued', (await utils.addJob(TASK, { n }, given)).id)
    }),

  // Until no job is left that is due.
  work: async (how) => {
    const task = async (_payload, { job }) => {
      say('running', job.id, job.locked_by)
      await handlers[how]()
    }
    await runOnce({ ...options, concurrency: 1, maxPoolSize: 2 }, { [TASK]: task })
  },
})
