import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { crc32, gzipSync } from 'node:zlib';
import { pack } from 'tar-stream';
import type { Site } from './origin.ts';

/** An npm registry with one package, `NAME@1.0.0`, at `/npm/`. `postinstall`: a command that its installation runs. */
export async function npmSite(name: string, main: string, postinstall?: string): Promise<Site> {
  const archive = pack();
  const scripts = postinstall === undefined ? {} : { scripts: { postinstall }, hasInstallScript: true };
  const manifest = { name, version: '1.0.0', main: 'index.js', ...scripts };
  archive.entry({ name: 'package/package.json' }, JSON.stringify(manifest));
  archive.entry({ name: 'package/index.js' }, main);
  archive.finalize();
  const tarball = gzipSync(await buffer(archive));
  const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`;
  const file = `/npm/${name}/-/${name}-1.0.0.tgz`;
  return (_request, url, response) => {
    if (url.pathname === file) response.end(tarball);
    else if (url.pathname === `/npm/${name}`) {
      const dist = { tarball: new URL(file, url).href, integrity };
      response.setHeader('Content-Type', 'application/json');
      response.end(
        JSON.stringify({
          name,
          'dist-tags': { latest: '1.0.0' },
          versions: { '1.0.0': { ...manifest, dist } },
        }),
      );
    } else return false;
    return true;
  };
}

/** An index of Python packages with one wheel, `NAME` 1.0, at `/simple/`. */
export function pythonSite(name: string, body: string): Site {
  const info = `${name}-1.0.dist-info`;
  const wheel = storedZip({
    [`${name}.py`]: body,
    [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: 1.0\n`,
    [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    [`${info}/RECORD`]: `${name}.py,,\n${info}/METADATA,,\n${info}/WHEEL,,\n${info}/RECORD,,\n`,
  });
  const file = `${name}-1.0-py3-none-any.whl`;
  return (_request, url, response) => {
    if (url.pathname === `/simple/${file}`) response.end(wheel);
    else if (url.pathname === `/simple/${name}/`) {
      response.setHeader('Content-Type', 'text/html');
      response.end(`<!DOCTYPE html><html><body><a href="../${file}">${file}</a></body></html>`);
    } else return false;
    return true;
  };
}

/** A zip archive of files that are not packed. */
function storedZip(files: Readonly<Record<string, string>>): Buffer {
  const local: Buffer[] = [];
  const central: Buffer[] = [];
  let at = 0;
  for (const [name, content] of Object.entries(files)) {
    const [nameBytes, bytes] = [Buffer.from(name), Buffer.from(content)];
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    // 1 January 1980, the first day that a zip knows.
    common.writeUInt16LE(0x21, 8);
    common.writeUInt32LE(crc32(bytes), 10);
    common.writeUInt32LE(bytes.length, 14);
    common.writeUInt32LE(bytes.length, 18);
    common.writeUInt16LE(nameBytes.length, 22);
    const entry = Buffer.concat([Buffer.from('PK\x03\x04'), common, nameBytes, bytes]);
    local.push(entry);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(at, 10);
    central.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\0'), common, rest, nameBytes]));
    at += entry.length;
  }
  const directory = Buffer.concat(central);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(central.length, 4);
  end.writeUInt16LE(central.length, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(at, 12);
  return Buffer.concat([...local, directory, Buffer.from('PK\x05\x06'), end]);
}
