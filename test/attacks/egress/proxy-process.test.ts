import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import Docker from 'dockerode';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { EgressFixture, ALLOWED_HOST } from './egress-fixture.ts';

const ListedSchema = z.array(z.object({ Id: z.string(), Names: z.array(z.string()) }));

let fixture: EgressFixture;
const docker = new Docker();
beforeAll(async () => {
  fixture = await EgressFixture.create();
  await ask();
});
afterAll(async () => {
  await fixture.dispose();
});

const target = () => `${ALLOWED_HOST}:${fixture.port}`;
const ask = async () => {
  const get = `GET http://${target()}/hello HTTP/1.1\r\nHost: ${target()}\r\n\r\n`;
  return (await fixture.sendRequests([get]))[0]?.status;
};

/** The container of the process that reads what sandboxes send, by the home's label; null if there is none. */
async function proxyId(): Promise<string | null> {
  const filters = { label: [`dev.holdfast.home=${fixture.home.id}`] };
  const listed = ListedSchema.parse(await docker.listContainers({ filters }));
  return listed.find(({ Names }) => Names.some((name) => name.includes('-egress-')))?.Id ?? null;
}

async function container(): Promise<Docker.Container> {
  const id = await proxyId();
  if (id === null) throw new Error('there is no egress proxy');
  return docker.getContainer(id);
}

/** Runs a script with the process's own uid in its container, as one who has taken it over. */
async function takenOver(script: string): Promise<string> {
  const exec = await (
    await container()
  ).exec({
    Cmd: ['node', '-e', script],
    AttachStdout: true,
    AttachStderr: true,
    Tty: true,
  });
  const stream = await exec.start({ Tty: true });
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts).toString().trim();
}

test('whoever takes the proxy over reaches no network, no engine, no home, and can write nothing', async () => {
  const { host, port } = { host: '127.0.0.1', port: fixture.port };
  const gateways = ['172.17.0.1', '169.254.169.254', '192.0.2.1'];
  const said = await takenOver(`
    const fs = require('node:fs'), net = require('node:net'), os = require('node:os'), dns = require('node:dns');
    const tell = {};
    const tries = (name, act) => { try { act(); tell[name] = 'done'; } catch (error) { tell[name] = error.code; } };
    tell.uid = process.getuid();
    tell.caps = /^CapEff:\\s*(\\S+)/m.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1];
    tell.noNewPrivileges = /^NoNewPrivs:\\s*(\\S+)/m.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1];
    tell.seccomp = /^Seccomp:\\s*(\\S+)/m.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1];
    tell.interfaces = Object.keys(os.networkInterfaces());
    tell.control = fs.readdirSync('/ctl');
    tell.mounts = fs.readFileSync('/proc/mounts', 'utf8').split('\\n').map((line) => line.split(' ')[1])
      .filter((path) => path && !/^\\/(proc|sys|dev|etc\\/(hosts|hostname|resolv.conf)|sbin\\/docker-init)?(\\/|$)/.test(path) && path !== '/');
    tries('new file', () => fs.writeFileSync('/ctl/x', ''));
    tries('new folder', () => fs.mkdirSync('/ctl/y'));
    tries('other socket', () => fs.renameSync('/ctl/sidecar.sock', '/ctl/z'));
    tries('own program', () => fs.writeFileSync('/opt/holdfast/egress-proxy.cjs', ''));
    tries('tmp', () => fs.writeFileSync('/tmp/x', ''));
    tries('root', () => fs.writeFileSync('/x', ''));
    tries('engine', () => fs.statSync('/var/run/docker.sock'));
    tries('home', () => fs.statSync(${JSON.stringify(fixture.home.path)}));
    const reach = (options) => new Promise((done) => {
      const socket = net.connect({ ...options, timeout: 2000 });
      socket.on('connect', () => done('reached'));
      socket.on('timeout', () => done('silent'));
      socket.on('error', (error) => done(error.code));
    });
    (async () => {
      tell.origin = await reach({ host: '${host}', port: ${String(port)} });
      tell.allowed = await reach({ host: '127.0.0.3', port: ${String(port)} });
      tell.away = [];
      for (const host of ${JSON.stringify(gateways)}) tell.away.push(await reach({ host, port: 80 }));
      tell.abstract = await reach({ path: '\\0/containerd-shim' });
      tell.name = await dns.promises.resolve4('example.com').then(() => 'resolved', (error) => error.code);
      console.log(JSON.stringify(tell));
    })();
  `);
  const tell = z.record(z.string(), z.unknown()).parse(JSON.parse(said));
  expect(tell).toMatchObject({
    uid: 64_321,
    caps: '0000000000000000',
    noNewPrivileges: '1',
    seccomp: '2',
    interfaces: ['lo'],
    control: ['sidecar.sock'],
    mounts: ['/ctl', '/opt/holdfast'],
    'new file': 'EACCES',
    'new folder': 'EACCES',
    'other socket': 'EACCES',
    'own program': 'EROFS',
    tmp: 'EROFS',
    root: 'EROFS',
    engine: 'ENOENT',
    home: 'ENOENT',
    origin: 'ECONNREFUSED',
    allowed: 'ECONNREFUSED',
    away: gateways.map(() => 'ENETUNREACH'),
    abstract: 'ECONNREFUSED',
  });
  expect(tell['name']).not.toBe('resolved');
  expect(fixture.reachedCanaries()).toEqual([]);
  const { Config, HostConfig } = await (await container()).inspect();
  expect(HostConfig.Memory).toBeGreaterThan(0);
  expect(HostConfig.PidsLimit).toBe(64);
  expect(Config.Env.join(' ')).not.toContain(fixture.home.path);
}, 60_000);

test('one that is killed, or has used up its memory, is replaced, and nothing of it is left', async () => {
  const first = await container();
  await first.kill();
  expect(await ask()).toBe(200);
  const second = await container();
  expect(second.id).not.toBe(first.id);
  // In the container's own limit: whichever process the kernel ends, requests are served afterwards.
  await takenOver('const held = []; for (;;) held.push(Buffer.alloc(16 * 2 ** 20, 1));');
  await expect.poll(ask, { timeout: 60_000 }).toBe(200);
  const runs = await readdir(join(fixture.home.path, 'egress'));
  expect(runs).toHaveLength(1);
}, 120_000);

test('an engine that sees no files of this machine has it in a container, too', async () => {
  const far = await EgressFixture.create({ HOLDFAST_ENGINE_MODE: 'volumes' });
  try {
    const there = `${ALLOWED_HOST}:${far.port}`;
    const get = `GET http://${there}/hello HTTP/1.1\r\nHost: ${there}\r\n\r\n`;
    const statuses = async () =>
      (await far.sendRequests([get, get, get, get], 20).catch(() => [])).map(({ status }) => status);
    const soon = { timeout: 60_000, interval: 500 } as const;
    // The first turn waits until its egress listens, although each connection costs a relay there.
    expect(await statuses()).toEqual([200, 200, 200, 200]);
    const filters = { label: [`dev.holdfast.home=${far.home.id}`] };
    const find = async () =>
      ListedSchema.parse(await docker.listContainers({ filters })).find(({ Names }) =>
        Names.some((name) => name.includes('-egress-')),
      );
    const first = await find();
    if (first === undefined) throw new Error('there is no egress proxy');
    const { Mounts, HostConfig, Config } = await docker.getContainer(first.Id).inspect();
    expect(Mounts.map(({ Destination, RW }) => [Destination, RW])).toEqual([['/opt/holdfast', false]]);
    expect(HostConfig).toMatchObject({ NetworkMode: 'none', ReadonlyRootfs: true });
    expect(HostConfig.LogConfig?.Type).toBe('none');
    expect(Config.User).toBe('64321:64321');
    await docker.getContainer(first.Id).kill();
    await expect.poll(statuses, soon).toEqual([200, 200, 200, 200]);
    expect((await find())?.Id).not.toBe(first.Id);
    process.kill(await far.home.supervisorPid(), 'SIGKILL');
    await expect.poll(find, { timeout: 30_000 }).toBeUndefined();
  } finally {
    await far.dispose();
  }
}, 180_000);

test('one whose supervisor is killed ends by itself', async () => {
  const id = await proxyId();
  expect(id).not.toBeNull();
  process.kill(await fixture.home.supervisorPid(), 'SIGKILL');
  await expect.poll(proxyId, { timeout: 30_000 }).toBeNull();
  expect(await ask()).toBe(200);
  expect(await proxyId()).not.toBe(id);
}, 60_000);
