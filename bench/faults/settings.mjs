/**
 * Who takes part in the report on faults, and how. Each setting of a peer that is not its default quotes a sentence of its
 * pages as the source. If you maintain a peer, you can correct a line here, and run `npm run bench -- --faults --library <id>`.
 *
 *   module    in `bench/contestants`, if it has another name
 *   package   whose version the page prints
 *   store     where it keeps its locks
 *   renews    it extends a lease while the work runs: otherwise work is longer than the ttl only if that is the fault
 *   forms     in which it takes part; `one` includes a replica
 *   listens   it has a subscription
 *   fences    it has fencing tokens
 *   faults    if it takes part only in some
 *   isControl it must fail
 *   wire      the text in its commands about the lock, if it is not the key
 *   settings  given to the module
 *   says      the sentence of its `page` for each setting, and for the check whether the lock is still held
 */
export const TTL_MS = 3_000;

const REDLOCK_5 = 'https://github.com/mike-marcacci/node-redlock#readme';
const SESAMECARE = 'https://github.com/sesamecare/redlock#readme';
const SEMAPHORE = 'https://github.com/swarthy/redis-semaphore#readme';
const UNIVERSAL = 'https://github.com/alexpota/redlock-universal#readme';
const REDIS_KIT = 'https://github.com/CSenshi/redis-kit/tree/main/packages/lock';
const VERROU = 'https://verrou.dev/docs/api';
const MURLOCK = 'https://github.com/felanios/murlock#readme';

const SHEDLOCK = 'https://github.com/lukas-krecan/ShedLock#readme';
const ADVISORY = 'https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS';
const GET_LOCK =
  'https://mariadb.com/docs/server/reference/sql-functions/secondary-functions/miscellaneous-functions/get_lock';

const ALL_FORMS = ['one', 'nodes', 'cluster'];

/** No page of a peer asks for a time limit of the client, and some do better with one. */
const WITH_TIME_LIMIT = {
  faults: [
    'store-paused',
    'holder-hole',
    'nodes-none',
    'nodes-1-stopped',
    'nodes-2-stopped',
    'nodes-3-stopped',
    'nodes-restarted-empty',
  ],
};
const TIME_LIMIT = { commandTimeout: 500 };

const NO_LOCK = { module: 'no-lock', forms: ['one'], isControl: true, sendsNothing: true };

const OURS = {
  package: 'nest-redis-lock',
  store: 'redis',
  renews: true,
  forms: ALL_FORMS,
  listens: true,
  fences: true,
};

const OURS_ON_SQL = { ...OURS, module: 'library-sql', forms: ['one'], listens: false };
const sessionLock = { module: 'session-lock', renews: true, forms: ['one'] };
const shedlock = {
  module: 'shedlock',
  forms: ['one'],
  page: SHEDLOCK,
  says: {
    'its statements by the time of the database; asked every 200 ms until one succeeds':
      'If a task is already being executed on one node, execution on other nodes does not wait, it is simply skipped.',
    'held until its turn ends: it has no way to ask': 'LockAssert.assertLocked();',
  },
};
const verrouOnSql = { module: 'verrou-sql', package: '@verrou/core', forms: ['one'] };

const redlock5 = {
  package: 'redlock-5',
  store: 'redis',
  renews: true,
  forms: ALL_FORMS,
  settings: { acquire: { retryCount: -1 } },
  page: REDLOCK_5,
  says: {
    '`using` with `retryCount: -1`':
      'Note that with `retryCount=-1` there will be unlimited retries until the lock is aquired.',
    'held while its signal is not aborted':
      'In the case that auto-extension fails, an AbortSignal will be updated to indicate that abortion of the routine is in order',
  },
};

const redisSemaphore = {
  package: 'redis-semaphore',
  store: 'redis',
  renews: true,
  forms: ['one', 'nodes'],
  settings: { lock: { onLockLost: () => {} } },
  page: SEMAPHORE,
  says: {
    '`onLockLost` is given': 'By default onLockLost throws unhandled LostLockError',
    'held while `isAcquired`': 'while (mutex.isAcquired) { // critical cycle iteration }',
  },
};

const redlockUniversal = {
  package: 'redlock-universal',
  store: 'redis',
  renews: true,
  forms: ALL_FORMS,
  settings: { lock: { retryAttempts: 100 } },
  page: UNIVERSAL,
  says: {
    '`using`, one lock object for each key':
      'SimpleLock includes a built-in circuit breaker that fast-fails when Redis is persistently unavailable',
    '`retryAttempts: 100`, which is 10 s or more': 'retryAttempts?: number; // Default: 3',
    'held while its signal is not aborted': 'const result = await lock.using(async (signal) => {',
  },
};

export const PARTICIPANTS = {
  library: { title: 'this library', ...OURS },
  'library-node-redis': { title: 'this library, node-redis', ...OURS },
  'redlock-5': { title: 'redlock 5', ...redlock5 },
  'sesamecare-redlock': {
    title: '@sesamecare-oss/redlock',
    package: '@sesamecare-oss/redlock',
    store: 'redis',
    renews: true,
    forms: ALL_FORMS,
    page: SESAMECARE,
    says: {
      '`using` with the default of 10 retries: by its source a `retryCount` of the call holds for its extensions as well, and the call waits for them':
        'The max number of times Redlock will attempt to lock a resource before erroring.',
      'held while its signal is not aborted':
        'In the case that auto-extension fails, an AbortSignal will be updated to indicate that abortion of the routine is in order',
    },
  },
  'redis-semaphore': { title: 'redis-semaphore', ...redisSemaphore },
  'redlock-universal': { title: 'redlock-universal', ...redlockUniversal },
  'redis-kit': {
    title: '@redis-kit/lock',
    package: '@redis-kit/lock',
    store: 'redis',
    renews: true,
    forms: ['one', 'nodes'],
    settings: { redlock: { maxRetryAttempts: 40 } },
    page: REDIS_KIT,
    says: {
      '`acquire` and `startAutoExtension`':
        'startAutoExtension(thresholdMs?: number): void - Starts automatic extension',
      '`maxRetryAttempts: 40`, which is 8 s or more': 'maxRetryAttempts?: number; // Maximum retries (default: 3)',
      'held while `isValid`': 'isValid: boolean - Whether the lock is currently valid',
    },
  },
  verrou: {
    title: '@verrou/core',
    package: '@verrou/core',
    store: 'redis',
    forms: ['one'],
    page: VERROU,
    says: {
      '`acquire` with its defaults, which wait without an end':
        'If the lock is already acquired, it will wait until it is released or the timeout is reached.',
      'held while not `isExpired()`': 'Check if the lock is expired.',
    },
  },
  murlock: {
    title: 'murlock',
    package: 'murlock',
    store: 'redis',
    forms: ['one'],
    settings: { module: { wait: 200, blocking: true } },
    page: MURLOCK,
    says: {
      '`blocking: true`':
        'MurLock supports a blocking mode where it will continuously retry to acquire the lock until successful.',
      '`wait: 200`, so that it asks as often as others':
        'Time in milliseconds to wait before retrying to obtain a lock if the initial attempt fails.',
      'held until its turn ends: it has no way to ask': 'runWithLock(lockKey, lockTime, async () => {',
    },
  },
  'redlock-5-limited': {
    title: 'redlock 5, time limit',
    module: 'redlock-5',
    ...redlock5,
    ...WITH_TIME_LIMIT,
    settings: { ...redlock5.settings, client: TIME_LIMIT },
  },
  'redis-semaphore-limited': {
    title: 'redis-semaphore, time limit',
    module: 'redis-semaphore',
    ...redisSemaphore,
    ...WITH_TIME_LIMIT,
    settings: { ...redisSemaphore.settings, client: TIME_LIMIT },
  },
  'redlock-universal-limited': {
    title: 'redlock-universal, time limit',
    module: 'redlock-universal',
    ...redlockUniversal,
    ...WITH_TIME_LIMIT,
    settings: { ...redlockUniversal.settings, client: TIME_LIMIT },
  },
  'set-nx': { title: 'SET NX', store: 'redis', forms: ['one', 'cluster'], isControl: true },
  'no-lock': { title: 'no lock', ...NO_LOCK, store: 'redis', forms: ALL_FORMS },
  'library-postgres': {
    title: 'this library, PostgreSQL',
    ...OURS_ON_SQL,
    store: 'postgres',
    settings: { option: 'postgres' },
  },
  'advisory-lock': {
    title: 'advisory lock',
    ...sessionLock,
    store: 'postgres',
    wire: 'pg_advisory',
    settings: { dialect: 'postgres' },
    page: ADVISORY,
    says: {
      '`pg_advisory_lock`, held while its connection is open':
        'Once acquired at session level, an advisory lock is held until explicitly released or the session ends.',
    },
  },
  'shedlock-postgres': {
    title: 'statements of ShedLock',
    ...shedlock,
    store: 'postgres',
    settings: { dialect: 'postgres' },
  },
  'verrou-postgres': {
    title: '@verrou/core, knex',
    ...verrouOnSql,
    store: 'postgres',
    settings: { dialect: 'postgres' },
  },
  'no-lock-postgres': { title: 'no lock', ...NO_LOCK, store: 'postgres' },
  'library-mariadb': {
    title: 'this library, MariaDB',
    ...OURS_ON_SQL,
    store: 'mariadb',
    wire: '686f74', // it sends keys in hexadecimal digits
    settings: { option: 'mysql' },
  },
  'get-lock': {
    title: 'GET_LOCK',
    ...sessionLock,
    store: 'mariadb',
    settings: { dialect: 'mariadb' },
    page: GET_LOCK,
    says: {
      '`GET_LOCK`, held while its connection is open':
        'A lock is released with RELEASE_LOCK(), when the connection terminates (either normally or abnormally).',
    },
  },
  'shedlock-mariadb': {
    title: 'statements of ShedLock',
    ...shedlock,
    store: 'mariadb',
    wire: 'UPDATE shedlock',
    settings: { dialect: 'mariadb' },
  },
  'verrou-mariadb': { title: '@verrou/core, knex', ...verrouOnSql, store: 'mariadb', settings: { dialect: 'mariadb' } },
  'no-lock-mariadb': { title: 'no lock', ...NO_LOCK, store: 'mariadb' },
};
