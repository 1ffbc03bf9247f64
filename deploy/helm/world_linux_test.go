package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	// nameServer is the address of the name server and of the machine, which
	// runs the load and the probes.
	nameServer = "10.42.0.1"
	prefix     = 16
	// resolver is /etc/resolv.conf in pods, as kubelets write it.
	resolver = "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver " + nameServer + "\noptions ndots:5\n"
	domain   = "hostd-nodes.default.svc.cluster.local"
	service  = "hostd.default.svc.cluster.local"
	// patience limits each wait of the test, although the awaited conditions take
	// only seconds.
	patience = 3 * time.Minute
	// restartPause is the pause before a container that ended starts again.
	restartPause = time.Second
)

// world is a machine with a bridge, a name server and pods.
type world struct {
	t       *testing.T
	dir     string
	image   image
	names   *names
	ended   atomic.Int32 // number of containers that ended without being stopped
	mu      sync.Mutex
	next    netip.Addr
	links   int
	running map[string]*pod
}

// newWorld makes the network of the machine.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), image: newImage(t), next: netip.MustParseAddr("10.42.1.1"), running: map[string]*pod{}}
	// Mounts on parent directories must not hide the directory from containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"link", "add", "br0", "type", "bridge"},
		{"addr", "add", fmt.Sprintf("%s/%d", nameServer, prefix), "dev", "br0"}, {"link", "set", "br0", "up"},
	} {
		if err := ip(args...); err != nil {
			t.Fatal(err)
		}
	}
	// The clients in this process use the name server too.
	file := filepath.Join(w.dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+nameServer+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	w.names = serveNames(t, nameServer)
	t.Cleanup(func() {
		w.mu.Lock()
		left := make([]*pod, 0, len(w.running))
		for _, p := range w.running {
			left = append(left, p)
		}
		w.mu.Unlock()
		for _, p := range left {
			p.kill()
		}
		if t.Failed() {
			w.showLogs()
		}
	})
	return w
}

// showLogs prints the ends of the containers' logs.
func (w *world) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err == nil {
			w.t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-12000):])
		}
	}
}

// pod is a container with an address of its own.
type pod struct {
	*container
	world   *world
	address netip.Addr
	hosts   []string // names of the pod itself
	serves  []string // names that have the pod's address while it is ready
	// hookMayFail is set if the node stops together with the others, so that there
	// is no node to which leaderships can be moved.
	hookMayFail bool
	ready       atomic.Bool
	stopped     chan struct{} // closed when the pod has to end
	gone        chan struct{} // closed when the pod has ended

	mu    sync.Mutex
	cmd   *exec.Cmd
	ends  chan error // receives the result of the current process
	began int        // how many times the container was started
}

// start starts a pod with a new address. hosts are its own names, and serves
// are the names of services that include only ready pods.
func (w *world) start(c *container, hosts, serves []string) *pod {
	w.t.Helper()
	w.mu.Lock()
	w.next = w.next.Next()
	p := &pod{container: c, world: w, address: w.next, hosts: hosts, serves: serves, stopped: make(chan struct{}), gone: make(chan struct{})}
	before := w.running[c.name]
	w.running[c.name] = p
	w.mu.Unlock()
	if before != nil {
		w.t.Errorf("%s runs already", c.name)
	}
	for _, name := range hosts {
		w.names.add(name, p.address)
	}
	if err := p.launch(); err != nil {
		w.t.Fatal(err)
	}
	go p.tend()
	return p
}

// launch starts the container's process.
func (p *pod) launch() error {
	w := p.world
	w.mu.Lock()
	w.links++
	link := "v" + strconv.Itoa(w.links)
	w.mu.Unlock()
	s := sandbox{
		Root: filepath.Join(w.dir, link), Argv: p.argv, Env: p.env, UID: p.uid, GID: p.gid, Hostname: p.name,
		Address: fmt.Sprintf("%s/%d", p.address, prefix), Binds: []bind{{Source: filepath.Join(w.image.root, "usr/bin"), Target: "/usr/bin", ReadOnly: true}},
	}
	for _, m := range p.mounts {
		s.Binds = append(s.Binds, bind{m.source, m.target, m.readOnly})
	}
	if isDynamic(w.image.program()) {
		// Release programs are statically linked, but a program that other tests have
		// built may not be.
		for _, dir := range []string{"/lib", "/lib64"} {
			if _, err := os.Stat(dir); err == nil {
				s.Binds = append(s.Binds, bind{dir, dir, true})
			}
		}
	}
	if err := s.prepareRoot(resolver); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file := s.Root + ".json"
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(w.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	wait, attached, err := os.Pipe()
	if err != nil {
		return err
	}
	defer attached.Close()
	cmd := exec.Command(self)
	cmd.Env = []string{sandboxVariable + "=" + file, "PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{wait}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	err = cmd.Start()
	wait.Close()
	if err != nil {
		return err
	}
	ends := make(chan error, 1)
	go func() { ends <- cmd.Wait() }()
	octets := p.address.As4()
	mac := fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", octets[0], octets[1], octets[2], octets[3])
	for _, args := range [][]string{
		{"link", "add", link, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", strconv.Itoa(cmd.Process.Pid)},
		{"link", "set", link, "master", "br0", "up"},
	} {
		if err := ip(args...); err != nil {
			return errors.Join(err, cmd.Process.Kill())
		}
	}
	if _, err := attached.Write([]byte{1}); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.ends = cmd, ends
	p.began++
	return nil
}

// isDynamic reports whether a program needs the system's loader.
func isDynamic(program string) bool {
	f, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// tend acts like a kubelet: it probes the container, and restarts it if it has
// ended or fails its liveness probe.
func (p *pod) tend() {
	defer close(p.gone)
	defer p.setReady(false)
	for {
		ctx, cancel := context.WithCancel(context.Background())
		probing := make(chan struct{})
		go func() {
			defer close(probing)
			p.probe(ctx)
		}()
		err := <-p.ends
		cancel()
		<-probing
		p.setReady(false)
		select {
		case <-p.stopped:
			return
		default:
		}
		p.world.ended.Add(1)
		p.world.t.Logf("%s ended by itself: %v", p.name, err)
		select {
		case <-p.stopped:
			return
		case <-time.After(restartPause):
		}
		if err := p.launch(); err != nil {
			p.world.t.Error(err)
			return
		}
	}
}

// probe runs the probes of one process until ctx ends.
func (p *pod) probe(ctx context.Context) {
	if p.readiness == nil {
		p.setReady(true)
		return
	}
	failures := 0
	for !p.ask(ctx, p.startup) {
		if failures++; failures >= int(p.startup.FailureThreshold) {
			p.signal(syscall.SIGKILL)
		}
		if !sleep(ctx, time.Duration(p.startup.PeriodSeconds)*time.Second) {
			return
		}
	}
	var both sync.WaitGroup
	both.Go(func() {
		for failures := 0; sleep(ctx, time.Duration(p.liveness.PeriodSeconds)*time.Second); {
			if failures++; p.ask(ctx, p.liveness) {
				failures = 0
			}
			if failures >= int(p.liveness.FailureThreshold) {
				p.world.t.Errorf("%s is not alive", p.name)
				p.signal(syscall.SIGKILL)
			}
		}
	})
	both.Go(func() {
		for failures := 0; ; {
			if p.ask(ctx, p.readiness) {
				failures = 0
				p.setReady(true)
			} else if failures++; failures >= int(p.readiness.FailureThreshold) {
				p.setReady(false)
			}
			if !sleep(ctx, time.Duration(p.readiness.PeriodSeconds)*time.Second) {
				return
			}
		}
	})
	both.Wait()
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ask sends one request of a probe.
func (p *pod) ask(ctx context.Context, probe *corev1.Probe) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address.String()+":"+p.portOf(probe)+probe.HTTPGet.Path, nil)
	if err != nil {
		p.world.t.Error(err)
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	return res.StatusCode < 400
}

// setReady adds the pod to its services, or removes it.
func (p *pod) setReady(ready bool) {
	select {
	case <-p.stopped:
		ready = false // a pod that is terminating is no endpoint of a service
	default:
	}
	if p.ready.Swap(ready) == ready {
		return
	}
	for _, name := range p.serves {
		if ready {
			p.world.names.add(name, p.address)
		} else {
			p.world.names.remove(name, p.address)
		}
	}
}

func (p *pod) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s) // the process may have ended
}

// stop ends the pod like Kubernetes: the services remove it, the preStop hook
// runs, and then the process gets SIGTERM and, at the end of the grace period,
// SIGKILL.
func (p *pod) stop() {
	deadline := time.Now().Add(time.Duration(p.grace) * time.Second)
	close(p.stopped)
	p.setReady(false)
	if len(p.preStop) > 0 {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		if out, err := p.run(ctx, p.preStop...); err != nil && !p.hookMayFail {
			p.world.t.Errorf("%s: the hook before the stop: %v\n%s", p.name, err, out)
		}
		cancel()
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(time.Until(deadline)):
		p.world.t.Errorf("%s does not end within its grace period", p.name)
	}
	p.forget()
}

// kill ends the pod without a warning.
func (p *pod) kill() {
	select {
	case <-p.stopped:
	default:
		close(p.stopped)
	}
	p.forget()
}

func (p *pod) forget() {
	p.signal(syscall.SIGKILL)
	<-p.gone
	for _, name := range p.hosts {
		p.world.names.remove(name, p.address)
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	delete(p.world.running, p.name)
}

// run runs a command in the container, with its environment.
func (p *pod) run(ctx context.Context, argv ...string) (string, error) {
	p.mu.Lock()
	pid := p.cmd.Process.Pid
	p.mu.Unlock()
	tool, err := exec.LookPath("nsenter")
	if err != nil {
		return "", err
	}
	program := argv[0]
	if !strings.Contains(program, "/") {
		program = filepath.Join(p.variable("PATH"), program)
	}
	args := []string{"--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--setgid", strconv.Itoa(p.gid), "--setuid", strconv.Itoa(p.uid), "--wd=/", "--", program}
	cmd := exec.CommandContext(ctx, tool, append(args, argv[1:]...)...)
	cmd.Env = p.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	return out.String(), err
}

// exec runs a command in the container and fails the test if it fails.
func (p *pod) exec(argv ...string) string {
	p.world.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := p.run(ctx, argv...)
	if err != nil {
		p.world.t.Fatalf("%s: %s: %v\n%s", p.name, strings.Join(argv, " "), err, out)
	}
	return out
}

// until waits for a condition.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if w.ended.Load() > 30 {
			w.t.Fatalf("containers end again and again while the test waits for: %s", what)
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("waited %v for: %s", patience, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// awaitReady waits until pods are ready.
func (w *world) awaitReady(pods ...*pod) {
	w.t.Helper()
	for _, p := range pods {
		w.until(p.name+" is ready", p.ready.Load)
	}
}

// startPod starts a pod by ordinal, with a new address and the volume that it
// had.
func (s *statefulSet) startPod(ordinal int) *pod {
	s.t.Helper()
	c := s.image.container(s.t, s.objects, ordinal, s.volume)
	return s.start(c, []string{domain, c.name + "." + domain}, []string{service})
}

// scale starts or stops pods, all at once.
func (s *statefulSet) scale(replicas int) {
	s.t.Helper()
	for len(s.pods) < replicas {
		s.pods = append(s.pods, s.startPod(len(s.pods)))
	}
	var stops sync.WaitGroup
	for _, p := range s.pods[replicas:] {
		stops.Go(p.stop)
	}
	stops.Wait()
	s.pods = s.pods[:replicas]
	s.awaitReady(s.pods...)
}

// replace stops a pod and starts it on another machine, with a new address.
func (s *statefulSet) replace(ordinal int) {
	s.t.Helper()
	s.pods[ordinal].stop()
	s.removeLost()
	s.pods[ordinal] = s.startPod(ordinal)
	s.awaitReady(s.pods[ordinal])
}

// roll restarts the pods one at a time, the last one first.
func (s *statefulSet) roll() {
	s.t.Helper()
	for i := range slices.Backward(s.pods) {
		s.replace(i)
		if *full {
			time.Sleep(time.Duration(s.objects.sets[0].Spec.MinReadySeconds) * time.Second)
		}
	}
}

// wipe empties the volume of a pod that doesn't run.
func (s *statefulSet) wipe(ordinal int) {
	s.t.Helper()
	if err := os.RemoveAll(s.data(ordinal)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *statefulSet) data(ordinal int) string {
	return filepath.Join(s.dir, "volumes", fmt.Sprintf("%s-%d", s.objects.sets[0].Name, ordinal), "data")
}

// volume creates a volume of a pod, with the owner and mode that a kubelet sets
// because of fsGroup.
func (s *statefulSet) volume(pod string, v corev1.Volume) string {
	s.t.Helper()
	dir := filepath.Join(s.dir, "volumes", pod, v.Name)
	gid := int(*s.objects.sets[0].Spec.Template.Spec.SecurityContext.FSGroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	files := map[string]string{}
	writable := false
	secret := func(name string, items []corev1.KeyToPath, optional bool) {
		content, ok := s.secrets[name]
		if !ok && !optional {
			s.t.Fatalf("%s: no secret %s", pod, name)
		}
		for _, item := range items {
			if ok {
				files[item.Path] = content[item.Key]
			}
		}
	}
	switch {
	case v.ConfigMap != nil:
		files = s.objects.configs[0].Data
	case v.Secret != nil:
		secret(v.Secret.SecretName, v.Secret.Items, false)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			secret(source.Secret.Name, source.Secret.Items, source.Secret.Optional != nil && *source.Secret.Optional)
		}
	default: // the volume is a claim or an empty directory
		writable = true
	}
	var err error
	if writable {
		err = errors.Join(os.Chown(dir, 0, gid), os.Chmod(dir, 0o775|os.ModeSetgid))
	}
	for name, content := range files {
		file := filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(file, []byte(content), 0o440), os.Chown(file, 0, gid))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return dir
}
