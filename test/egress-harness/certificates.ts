import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import Docker from 'dockerode';

export interface Certificates {
  /** The certificate authority, which only the clients of this test trust. */
  readonly ca: string;
  readonly certificate: string;
  readonly key: string;
}

const SCRIPT = `
set -e
cd /out
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/CN=an authority of a test' \
  -addext 'keyUsage=critical,keyCertSign,cRLSign' -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=a server of a test' -keyout server.key -out server.csr
printf 'subjectAltName=%s\\nkeyUsage=digitalSignature\\nextendedKeyUsage=serverAuth\\nbasicConstraints=CA:FALSE\\n' "$NAMES" >extensions
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.pem
chmod 644 *
`;

/**
 * A certificate for these names (and 127.0.0.1), created with the openssl of the agent image: not every machine has
 * one.
 */
export async function makeCertificates(names: readonly string[]): Promise<Certificates> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-ca-'));
  try {
    const alternatives = [...names.map((name) => `DNS:${name}`), 'IP:127.0.0.1'].join(',');
    const output = new PassThrough();
    const said = text(output);
    const [{ StatusCode }] = (await new Docker().run(__AGENT_IMAGE__, ['bash', '-c', SCRIPT], output, {
      Env: [`NAMES=${alternatives}`],
      User: `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`,
      HostConfig: { NetworkMode: 'none', AutoRemove: true, Binds: [`${folder}:/out`] },
    })) as [{ StatusCode: number }];
    output.end();
    if (StatusCode !== 0) throw new Error(`the certificates could not be made: ${await said}`);
    const read = (name: string): Promise<string> => readFile(join(folder, name), 'utf8');
    const [ca, certificate, key] = await Promise.all([
      read('ca.pem'),
      read('server.pem'),
      read('server.key'),
    ]);
    return { ca, certificate, key };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
