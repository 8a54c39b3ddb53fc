"""Makes, changes and describes trees in every attribute that a snapshot keeps. Runs in the agent's container, as the agent."""
import hashlib, json, os, random, socket, stat, sys

ROOT = b'/workspace'
NAMES = [b'a', b'b.txt', b'with space', b'new\nline', b'\xff\xfe', b'\xc3\x28', '\u00fc'.encode(), b'-rf', b'.git', b'.hidden', b'*', b'$(x)',
         b'n' * 255, b'node_modules', b'src', b'%41', b'back\\slash', b'tab\t']
MODES = [0o644, 0o600, 0o755, 0o000, 0o444, 0o4755, 0o2755, 0o111, 0o7777]
FOLDER_MODES = [0o755, 0o700, 0o000, 0o555, 0o1777, 0o2755, 0o300, 0o400]


def content(rnd):
    kind = rnd.randrange(12)
    if kind < 2:
        return b''
    if kind < 9:
        return rnd.randbytes(rnd.randrange(1, 5000))
    if kind < 11:
        return b'text ' * rnd.randrange(1, 40000)
    return rnd.randbytes(rnd.choice([2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 17, 9 * 2**20 + 1]))


def fresh(rnd, folder):
    for _ in range(40):
        name = rnd.choice(NAMES) if rnd.random() < 0.5 else b'f%d' % rnd.randrange(10**6)
        if not os.path.lexists(os.path.join(folder, name)):
            return name
    return b'g%d' % rnd.randrange(10**12)


def stamp(rnd, path):
    ns = rnd.choice([rnd.randrange(10**18, 17 * 10**17), 1, -1, -5 * 10**9 - 1, 10**9, 2**33 * 10**9 + 7, 1700000000 * 10**9])
    os.utime(path, ns=(ns, ns), follow_symlinks=False)


def attributes(rnd, path):
    if rnd.random() < 0.15:
        for _ in range(rnd.randrange(1, 4)):
            os.setxattr(path, b'user.' + rnd.choice([b'a', b'\xff', b'long' * 20, b'n%d' % rnd.randrange(9)]), rnd.randbytes(rnd.choice([0, 1, 300])))


def fill(folder, name, rnd, files):
    path = os.path.join(folder, name)
    kind = rnd.randrange(20)
    if kind == 0:
        os.symlink(rnd.choice([b'/etc/passwd', b'../..', b'gone', b'x' * 4000, b'\xff', b'/workspace']), path)
        stamp(rnd, path)
    elif kind == 1:
        os.mkfifo(path)
        os.chmod(path, rnd.choice([0o644, 0o000, 0o622]))
        stamp(rnd, path)
    elif kind == 2 and len(path) < 100:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path)
        stamp(rnd, path)
    elif kind == 3 and files:
        try:
            os.link(rnd.choice(files), path, follow_symlinks=False)
        except OSError:
            pass
    elif kind == 4:
        with open(path, 'wb') as out:
            size = rnd.choice([2**40, 5 * 2**20 + 3, 10 * 2**20])
            out.truncate(size)
            for _ in range(rnd.randrange(4)):
                out.seek(rnd.randrange(min(size, 2**24)) // 4096 * 4096)
                out.write(rnd.randbytes(rnd.randrange(1, 9000)))
            if rnd.random() < 0.3:
                out.truncate(size)
        finish(rnd, path, files)
    else:
        with open(path, 'wb') as out:
            out.write(content(rnd))
        finish(rnd, path, files)


def finish(rnd, path, files):
    attributes(rnd, path)
    os.chmod(path, rnd.choice(MODES) if rnd.random() < 0.3 else 0o644)
    stamp(rnd, path)
    files.append(path)


def grow(rnd, folder, depth, files, closing):
    for _ in range(rnd.randrange(1, 9)):
        fill(folder, fresh(rnd, folder), rnd, files)
    if depth > 0:
        for _ in range(rnd.randrange(0, 4)):
            name = fresh(rnd, folder)
            path = os.path.join(folder, name)
            os.mkdir(path)
            grow(rnd, path, depth - 1, files, closing)
            closing.append(path)


def close(rnd, folders):
    # The innermost come first.
    for path in folders:
        attributes(rnd, path)
        if rnd.random() < 0.3:
            os.chmod(path, rnd.choice(FOLDER_MODES))
        stamp(rnd, path)


class Lent:
    """Everything is open while it lasts, and as it was afterwards."""

    def __enter__(self):
        self.modes = []
        waiting = [ROOT]
        while waiting:
            path = waiting.pop()
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                self.lend(path, info, 0o700)
                waiting.extend(os.path.join(path, name) for name in os.listdir(path))
            elif stat.S_ISREG(info.st_mode):
                self.lend(path, info, 0o600)
        return self

    def lend(self, path, info, bits):
        if info.st_mode & bits != bits:
            self.modes.append((path, info, stat.S_IMODE(info.st_mode)))
            os.chmod(path, stat.S_IMODE(info.st_mode) | bits)

    def before(self, path, info):
        for one, then, mode in self.modes:
            if then.st_ino == info.st_ino:
                return mode
        return stat.S_IMODE(info.st_mode)

    def __exit__(self, *_):
        for path, info, mode in reversed(self.modes):
            if os.path.lexists(path) and os.lstat(path).st_ino == info.st_ino:
                os.chmod(path, mode)


def make(seed, depth='3'):
    rnd = random.Random(seed)
    files, closing = [], []
    grow(rnd, ROOT, int(depth), files, closing)
    close(rnd, closing)
    if rnd.random() < 0.3:
        stamp(rnd, ROOT)


def edit(seed):
    rnd = random.Random(seed)
    with Lent():
        every, folders = [], [ROOT]
        for top, below, names in os.walk(ROOT):
            folders.extend(os.path.join(top, name) for name in below if not os.path.islink(os.path.join(top, name)))
            every.extend(os.path.join(top, name) for name in names)
        folders.sort()
        every.sort()
        files = [path for path in every if stat.S_ISREG(os.lstat(path).st_mode)]
        for _ in range(rnd.randrange(1, 25)):
            what = rnd.randrange(10)
            folder = rnd.choice(folders)
            try:
                if what < 3:
                    fill(folder, fresh(rnd, folder), rnd, files)
                elif what == 3 and files:
                    with open(rnd.choice(files), 'r+b') as out:
                        out.seek(rnd.choice([0, 1, 5000]))
                        out.write(rnd.randbytes(rnd.randrange(1, 100)))
                elif what == 4 and every:
                    os.unlink(rnd.choice(every))
                elif what == 5 and every:
                    os.rename(rnd.choice(every), os.path.join(folder, fresh(rnd, folder)))
                elif what == 6 and len(folders) > 1:
                    victim = rnd.choice(folders[1:])
                    remove(victim)
                    if rnd.random() < 0.5:
                        fill(os.path.dirname(victim), os.path.basename(victim), rnd, files)
                elif what == 7 and len(folders) > 1:
                    os.rename(rnd.choice(folders[1:]), os.path.join(folder, fresh(rnd, folder)))
                elif what == 8:
                    path = rnd.choice(every + folders)
                    if not os.path.islink(path):
                        os.chmod(path, rnd.choice(MODES) | (0o700 if path in folders else 0))
                    stamp(rnd, path)
                elif what == 9:
                    path = os.path.join(folder, fresh(rnd, folder))
                    os.mkdir(path)
                    grow(rnd, path, 1, files, [])
            except OSError:
                pass  # what it was about went earlier


def remove(top):
    for folder, below, names in os.walk(top, topdown=False):
        for name in names + [one for one in below if os.path.islink(os.path.join(folder, one))]:
            os.unlink(os.path.join(folder, name))
        for name in below:
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
    os.rmdir(top)


def describe(out):
    found, inodes = {}, {}
    with Lent() as lent:
        waiting = [ROOT]
        while waiting:
            path = waiting.pop()
            info = os.lstat(path)
            mode = info.st_mode
            said = {'type': stat.S_IFMT(mode), 'mode': lent.before(path, info), 'mtime': str(info.st_mtime_ns)}
            if not stat.S_ISLNK(mode):
                said['owner'] = [info.st_uid, info.st_gid]
            if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                said['xattrs'] = sorted((name, os.getxattr(path, name).hex()) for name in os.listxattr(path))
            if stat.S_ISDIR(mode):
                waiting.extend(os.path.join(path, name) for name in os.listdir(path))
            else:
                inodes.setdefault(info.st_ino, []).append(path.hex())
            if stat.S_ISLNK(mode):
                said['target'] = os.readlink(path).hex()
            if stat.S_ISREG(mode):
                said['size'] = info.st_size
                said['data'] = extents(path, info.st_size)
            found[path.hex()] = said
    for names in inodes.values():
        if len(names) > 1:
            for name in names:
                found[name]['links'] = sorted(names)
    with open(out, 'w') as file:
        json.dump(found, file)


def extents(path, size):
    data = []
    with open(path, 'rb') as file:
        at = 0
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            digest = hashlib.sha256()
            file.seek(start)
            left = at - start
            while left > 0:
                block = file.read(min(left, 2**20))
                if not block:
                    break
                digest.update(block)
                left -= len(block)
            data.append([start, at, digest.hexdigest()])
    return data


def clear():
    with Lent():
        for name in os.listdir(ROOT):
            path = os.path.join(ROOT, name)
            if os.path.isdir(path) and not os.path.islink(path):
                remove(path)
            else:
                os.unlink(path)


deeds = {'make': make, 'edit': edit, 'describe': describe, 'clear': clear}
if __name__ == '__main__':
    deeds[sys.argv[1]](*sys.argv[2:])
