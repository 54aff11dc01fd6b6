import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/**
 * The files of a server with TLS, and the text of the authority that has signed its certificate, which nobody trusts.
 */
export interface Certificates {
  readonly ca: string;
  readonly caFile: string;
  readonly certFile: string;
  readonly keyFile: string;
}

/** Creates a certificate for `host`. Its files are removed when the test has finished. */
export function certificatesFor(host: string): Certificates {
  const dir = mkdtempSync(join(tmpdir(), 'certificates-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  chmodSync(dir, 0o755); // a server may run as another user
  const file = (name: string) => join(dir, name);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: dir, stdio: 'pipe' });
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.crt', '-subj', '/CN=authority');
  openssl(
    ...['req', '-x509', ...key, '-keyout', 'server.key', '-out', 'server.crt', '-subj', `/CN=${host}`],
    ...['-CA', 'ca.crt', '-CAkey', 'ca.key', '-addext', `subjectAltName=DNS:${host}`],
    ...['-addext', 'basicConstraints=critical,CA:FALSE'],
  );
  return {
    ca: readFileSync(file('ca.crt'), 'utf8'),
    caFile: file('ca.crt'),
    certFile: file('server.crt'),
    keyFile: file('server.key'),
  };
}
