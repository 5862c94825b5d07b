// pg-boss as an application would use it:
// install [POLICY] | enqueue N [OPTIONS] | work wait|waitfail|finish|fail | complete ID [RETRY_COUNT] | cancel ID.

import { handlers, load, main, say } from './common.mjs'

const { PgBoss } = await load('pg-boss')
const QUEUE = 'charges'

// Without supervision: the tests must see what leasetop does, not what pg-boss repairs a minute later.
const started = async () => {
  const boss = new PgBoss({
    host: process.env.PGHOST,
    port: Number(process.env.PGPORT),
    user: process.env.PGUSER,
    database: process.env.PGDATABASE,
    supervise: false,
    schedule: false,
    max: 2,
  })
  boss.on('error', (error) => console.error(error))
  return boss.start()
}

const withBoss = async (act) => {
  const boss = await started()
  try {
    await act(boss)
  } finally {
    await boss.stop({ graceful: true, timeout: 10_000 })
  }
}

await main({
  install: (policy = 'standard') => withBoss((boss) => boss.createQueue(QUEUE, { policy })),

  enqueue: (count, options = '{}') =>
    withBoss(async (boss) => {
      for (let n = 0; n < Number(count); n++) say('enqueued', await boss.send(QUEUE, { n }, JSON.parse(options)))
    }),

  // One job, and no more: stopping waits until it is written down.
  work: (how) =>
    withBoss(
      (boss) =>
        new Promise((resolve, reject) => {
          const handler = async ([job]) => {
            say('running', job.id)
            try {
              await handlers[how]()
            } finally {
              boss.offWork(QUEUE, { wait: false })
              resolve()
            }
          }
          boss.work(QUEUE, { pollingIntervalSeconds: 0.5, batchSize: 1 }, handler).catch(reject)
        })
    ),

  complete: (id, retryCount) =>
    withBoss(async (boss) => {
      const attempt = retryCount === undefined ? id : { id, retryCount: Number(retryCount) }
      say('affected', (await boss.complete(QUEUE, attempt)).affected)
    }),

  cancel: (id) => withBoss((boss) => boss.cancel(QUEUE, id)),
})
