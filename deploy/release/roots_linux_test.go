package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// These variables are set in the process that runs in namespaces of its own:
// the directory with the packages, and their format.
const (
	rootsVariable  = "HOSTD_TEST_ROOTS"
	formatVariable = "HOSTD_TEST_FORMAT"
)

// packaging is the program that installs packages of a format.
type packaging struct {
	program string
	file    func(version string) string
	install []string
	remove  [][]string // each leaves the data and the user
}

// packagings are the formats by name. The root file systems are Debian's, where
// rpm needs a flag and cannot find what other packages provide; it runs the
// scripts in the same order as anywhere, which differs from dpkg's: those of the
// new package run before those of the old one.
var packagings = map[string]packaging{
	"deb": {
		program: "dpkg", file: func(version string) string { return "hostd_" + version + "-1_amd64.deb" },
		install: []string{"dpkg", "--install"}, remove: [][]string{{"dpkg", "--remove", "hostd"}, {"dpkg", "--purge", "hostd"}},
	},
	"rpm": {
		program: "rpm", file: func(version string) string { return "hostd-" + version + "-1.x86_64.rpm" },
		install: []string{"rpm", "--force-debian", "--nodeps", "--upgrade"}, remove: [][]string{{"rpm", "--force-debian", "--erase", "hostd"}},
	},
}

// patience limits operations that take seconds on an idle machine.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(rootsVariable); dir != "" {
		if err := lifeOfPackages(dir, packagings[os.Getenv(formatVariable)]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// checkRoots installs the Debian package and then the RPM package in three root
// file systems each, and runs the unit's command in each. The root file systems
// are in-memory copies of this machine's. It then upgrades the package under
// load, and removes it.
func checkRoots(t *testing.T, r *release) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces and packages")
	}
	dir := t.TempDir()
	next := *r
	next.version, next.pairs, next.programs, next.out = "9.8.8", []string{"linux/amd64"}, nil, dir
	if err := next.build(dir); err != nil {
		t.Fatal(err)
	}
	if err := next.packages(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-buildmode=c-shared", "-o", filepath.Join(dir, "counter.wasm"), "./examples/wasm/counter")
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for format, p := range packagings {
		t.Run(format, func(t *testing.T) {
			if _, err := exec.LookPath(p.program); err != nil {
				t.Skipf("needs %s: Debian has it in the package %s", p.program, p.program)
			}
			if err := next.copyFrom(r.out, p.file(testVersion)); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), rootsVariable+"="+dir, formatVariable+"="+format)
			// When the first process of the namespace ends, the kernel ends the nodes.
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, syscall.EPERM) {
				t.Skipf("no namespaces here: %v", err)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

func (r *release) copyFrom(dir, name string) error {
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return r.write(name, content)
}

// host is a machine: a root file system, and the node of its service.
type host struct {
	packaging
	name, address string
	root          string
	uid, gid      uint32
	service       *exec.Cmd
	log           bytes.Buffer
	ended         chan struct{}
	notices       *net.UnixConn
}

// lifeOfPackages is the part of the test that runs in the namespaces.
func lifeOfPackages(dir string, p packaging) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	work := filepath.Join(dir, "roots")
	if err := errors.Join(os.MkdirAll(work, 0o755), syscall.Mount("none", work, "tmpfs", 0, "mode=0755")); err != nil {
		return err
	}
	var hosts []*host
	for i := range 3 {
		h := &host{packaging: p, name: fmt.Sprintf("n%d", i+1), address: fmt.Sprintf("127.0.1.%d", i+1), root: filepath.Join(work, strconv.Itoa(i), "root")}
		if err := h.prepare(dir); err != nil {
			return fmt.Errorf("prepare %s: %w", h.name, err)
		}
		if err := h.installVersion(testVersion); err != nil {
			return err
		}
		if _, err := h.run("hostd", "serve", "--check", "--config", "/etc/hostd/hostd.yaml", "--data-dir", "/var/lib/hostd"); err != nil {
			return err
		}
		hosts = append(hosts, h)
	}
	for _, h := range hosts {
		if err := h.start(); err != nil {
			return err
		}
	}
	for _, h := range hosts {
		if err := h.ready(); err != nil {
			return err
		}
	}
	if _, err := hosts[0].run("hostd", "module", "push", "/packages/counter.wasm", "--timeout", "2m"); err != nil {
		return err
	}
	l := startLoad(hosts)
	for _, h := range hosts {
		if err := h.upgrade("9.8.8"); err != nil {
			return err
		}
	}
	if err := l.stop(); err != nil {
		return err
	}
	out, err := hosts[0].run("hostd", "version", "--nodes")
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if !strings.Contains(out, "node "+h.name+" 9.8.8\n") {
			return fmt.Errorf("%s was not upgraded:\n%s", h.name, out)
		}
	}
	return hosts[2].removePackage()
}

// prepare mounts a copy of the machine's file system that is kept in memory,
// with the packages, and writes the node's settings.
func (h *host) prepare(packages string) error {
	base := filepath.Dir(h.root)
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("overlay", h.root, "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", base, base)); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(h.root, name) }
	if err := errors.Join(os.MkdirAll(at("packages"), 0o755), os.MkdirAll(at("etc/default"), 0o755), os.MkdirAll(at("run"), 0o755)); err != nil {
		return err
	}
	if err := errors.Join(syscall.Mount(packages, at("packages"), "", syscall.MS_BIND, ""), syscall.Mount("proc", at("proc"), "proc", 0, ""), syscall.Mount("/dev", at("dev"), "", syscall.MS_BIND, "")); err != nil {
		return err
	}
	settings := fmt.Sprintf("HOSTD_NODE_ID=%s\nHOSTD_LISTEN=%s:7070\nHOSTD_SEEDS=127.0.1.1:7071,127.0.1.2:7071,127.0.1.3:7071\nHOSTD_BOOTSTRAP_EXPECT=3\nHOSTD_ADMIN=full\nHOSTD_SHARDS=8\n", h.name, h.address)
	return os.WriteFile(at("etc/default/hostd"), []byte(settings), 0o644)
}

// run runs a command in the root file system, as root.
func (h *host) run(name string, args ...string) (string, error) {
	cmd := exec.Command("/usr/bin/env", append([]string{name}, args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "HOSTD_ADDR=" + h.address, "DEBIAN_FRONTEND=noninteractive"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: h.root}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %s %q: %w\n%s", h.name, name, args, err, out)
	}
	return string(out), err
}

// installVersion installs a package and checks the user and the data directory.
func (h *host) installVersion(version string) error {
	if _, err := h.run(h.install[0], append(h.install[1:len(h.install):len(h.install)], "/packages/"+h.file(version))...); err != nil {
		return err
	}
	for id, into := range map[string]*uint32{"-u": &h.uid, "-g": &h.gid} {
		out, err := h.run("id", id, "hostd")
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(strings.TrimSpace(out), 10, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("the user of the node is %q", out)
		}
		*into = uint32(n)
	}
	info, err := os.Stat(filepath.Join(h.root, "var/lib/hostd"))
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != h.uid || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("the data directory belongs to %d with %v", owner, info.Mode())
	}
	return nil
}

// unit returns the values of a key of the installed unit.
func (h *host) unit(key string) []string {
	text, err := os.ReadFile(filepath.Join(h.root, "usr/lib/systemd/system/hostd.service"))
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			out = append(out, value)
		}
	}
	return out
}

// start runs the unit's command as its user, with its environment and a notify
// socket, as systemd does.
func (h *host) start() error {
	socket := filepath.Join(h.root, "run/notify")
	os.Remove(socket) // socket of the previous process
	var err error
	if h.notices, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		return err
	}
	command := strings.Fields(h.unit("ExecStart")[0])
	h.service = exec.Command(command[0], command[1:]...)
	h.service.Dir = "/"
	h.service.Env = append(h.unit("Environment"), "NOTIFY_SOCKET=/run/notify", "PATH=/usr/bin:/bin")
	for _, file := range h.unit("EnvironmentFile") {
		text, err := os.ReadFile(filepath.Join(h.root, strings.TrimPrefix(file, "-")))
		if err != nil {
			return err
		}
		h.service.Env = append(h.service.Env, strings.Fields(string(text))...)
	}
	h.service.Stdout, h.service.Stderr = &h.log, &h.log
	h.service.SysProcAttr = &syscall.SysProcAttr{Chroot: h.root, Credential: &syscall.Credential{Uid: h.uid, Gid: h.gid}}
	if err := h.service.Start(); err != nil {
		return err
	}
	h.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // stop checks the exit code
	}(h.service, h.ended)
	return nil
}

// ready waits until the node reports that it serves.
func (h *host) ready() error {
	defer h.notices.Close()
	if err := h.notices.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for buffer := make([]byte, 4096); ; {
		n, err := h.notices.Read(buffer)
		if err != nil {
			h.service.Process.Kill()
			<-h.ended
			return fmt.Errorf("%s is not ready: %w\n%s", h.name, err, h.log.String())
		}
		if strings.Contains(string(buffer[:n]), "READY=1") {
			return nil
		}
	}
}

// stop stops the service like systemd. The service must exit successfully.
func (h *host) stop() error {
	if err := h.service.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-h.ended:
	case <-time.After(patience):
		return fmt.Errorf("%s does not end", h.name)
	}
	if !h.service.ProcessState.Success() {
		return fmt.Errorf("%s: %v\n%s", h.name, h.service.ProcessState, h.log.String())
	}
	return nil
}

// upgrade follows the install page: it upgrades the package, which leaves the
// node running and the configuration as the operator wrote it, and then drains
// and restarts the node.
func (h *host) upgrade(version string) error {
	before := h.service.Process.Pid
	config := filepath.Join(h.root, "etc/hostd/hostd.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	text = append(text, "# Changed by the operator.\n"...)
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return err
	}
	if err := h.installVersion(version); err != nil {
		return err
	}
	if kept, err := os.ReadFile(config); err != nil || !bytes.Equal(kept, text) {
		return fmt.Errorf("the upgrade changed the configuration of %s: %v\n%s", h.name, err, kept)
	}
	select {
	case <-h.ended:
		return fmt.Errorf("the upgrade of the package ended %d of %s\n%s", before, h.name, h.log.String())
	default:
	}
	if _, err := h.run("hostd", "node", "drain", h.name, "--timeout", "2m"); err != nil {
		return err
	}
	return errors.Join(h.stop(), h.start(), h.ready())
}

// removePackage removes the package, and checks that the data and the user stay.
func (h *host) removePackage() error {
	if err := h.stop(); err != nil {
		return err
	}
	for _, how := range h.remove {
		if _, err := h.run(how[0], how[1:]...); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(h.root, "usr/bin/hostd")); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the program is still there after %q: %v", how, err)
		}
		if _, err := os.Stat(filepath.Join(h.root, "var/lib/hostd/node.json")); err != nil {
			return fmt.Errorf("the data is gone after %q: %w", how, err)
		}
		if _, err := h.run("id", "hostd"); err != nil {
			return err
		}
	}
	return nil
}

// load sends commands to all nodes until it is stopped.
type load struct {
	hosts  []*host
	end    chan struct{}
	tasks  sync.WaitGroup
	done   atomic.Int64 // number of acknowledged commands
	failed atomic.Pointer[error]
}

func startLoad(hosts []*host) *load {
	l := &load{hosts: hosts, end: make(chan struct{})}
	for caller := range 4 {
		l.tasks.Go(func() {
			for i := 0; l.failed.Load() == nil; i++ {
				select {
				case <-l.end:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if err := l.send(fmt.Sprintf("c%d", caller), fmt.Sprintf("c%d-%d", caller, i)); err != nil {
					l.failed.Store(&err)
					return
				}
				l.done.Add(1)
			}
		})
	}
	return l
}

// send sends a command with an id to one node after the other until a node
// answers. Any answer other than success or "unavailable" is a failure.
func (l *load) send(entity, id string) error {
	c := http.Client{Timeout: 10 * time.Second}
	var last error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, h := range l.hosts {
			req, err := http.NewRequest(http.MethodPost, "http://"+h.address+":7070/e/counter/"+entity+"/add", strings.NewReader(`{"amount":1}`))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", id)
			res, err := c.Do(req)
			if err != nil {
				last = err // the node is stopped
				continue
			}
			text, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return err
			}
			if last = fmt.Errorf("%s: %s: %s", h.name, res.Status, text); res.StatusCode < 500 {
				return last
			}
		}
	}
	return fmt.Errorf("no node carries out %s: %w", id, last)
}

// stop ends the load, and checks that no command failed and that the entities
// counted each command once.
func (l *load) stop() error {
	close(l.end)
	l.tasks.Wait()
	if err := l.failed.Load(); err != nil {
		return fmt.Errorf("after %d commands: %w", l.done.Load(), *err)
	}
	var sum int64
	for caller := range 4 {
		out, err := l.hosts[0].run("hostd", "entity", "query", "counter", fmt.Sprintf("c%d", caller), "total")
		if err != nil {
			return err
		}
		var n int64
		if _, err := fmt.Sscanf(out, `{"total":%d}`, &n); err != nil {
			return fmt.Errorf("the total is %q: %w", out, err)
		}
		sum += n
	}
	if sum != l.done.Load() || sum == 0 {
		return fmt.Errorf("%d commands were acknowledged, the entities counted %d", l.done.Load(), sum)
	}
	fmt.Printf("%d commands under the upgrade, none failed\n", sum)
	return nil
}
