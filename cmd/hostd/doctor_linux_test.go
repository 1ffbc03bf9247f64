package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/cmd/hostd/internal/doctor"
	"github.com/hostd/hostd/tests/support/testkit"
)

// examined is what the command found.
type examined struct {
	code     int
	Findings []doctor.Finding
	errs     string
}

func examine(t *testing.T, args ...string) examined {
	t.Helper()
	got := hostd(t, append([]string{"doctor", "-o", "json"}, args...)...)
	e := examined{code: got.code, errs: got.err}
	if err := json.NewDecoder(strings.NewReader(got.out)).Decode(&e); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return e
}

// has reports whether there is a finding with an id and a severity.
func (e examined) has(id string, s doctor.Severity) bool {
	return slices.ContainsFunc(e.Findings, func(f doctor.Finding) bool { return f.ID == id && f.Severity == s && len(f.Mend) > 0 })
}

// finds waits until the command has the findings, each as "id severity".
func finds(t *testing.T, code int, wanted []string, args ...string) {
	t.Helper()
	var last examined
	missing := func() (out []string) {
		for _, want := range wanted {
			id, severity, _ := strings.Cut(want, " ")
			if !last.has(id, doctor.Severity(severity)) {
				out = append(out, want)
			}
		}
		return out
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if last = examine(t, args...); len(missing()) == 0 && last.code == code {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("code %d, want %d; %v is not found in %+v\n%s", last.code, code, missing(), last.Findings, last.errs)
		}
	}
}

// serving starts a node in a process of its own, by a shell that first runs
// prepare, and returns its address.
func serving(t *testing.T, prepare, dir string, flags ...string) devcluster.NodeInfo {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ports := filepath.Join(t.TempDir(), "ports.json")
	args := append([]string{"-c", prepare + ` exec "$0" "$@"`, program, "serve", "--data-dir", filepath.Join(dir, "data"), "--shards", "2", "--ports-file", ports}, flags...)
	node := exec.Command("sh", args...)
	var stderr lockedBuffer
	node.Stderr = &stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	var p devcluster.PortsFile
	eventually(t, "the node is ready: "+stderr.String(), func() bool {
		var err error
		p, err = devcluster.ReadPorts(ports)
		return err == nil
	})
	return p.Nodes[0]
}

// TestDoctorFindsNodeFaults checks that doctor reports a node with few file
// descriptors and little memory, an entity whose guest fails, and an
// operation that cannot finish.
func TestDoctorFindsNodeFaults(t *testing.T) {
	faulty := filepath.Join(t.TempDir(), "faulty.wasm")
	if err := os.WriteFile(faulty, testkit.BuildSource(t, "tests/e2e/entities/faulty/faulty.c"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := serving(t, "ulimit -n 2000; export GOMEMLIMIT=48MiB;", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "full")
	t.Setenv("HOSTD_ADDR", node.API)
	finds(t, 3, []string{"descriptors-few warning", "memory-near-limit warning"})
	if got := hostd(t, "module", "push", faulty); got.code != cli.ExitDone {
		t.Fatalf("push: %+v", got)
	}
	for range 3 {
		if got := hostd(t, "entity", "send", "faulty", "a", "trap"); got.code != cli.ExitFailed {
			t.Fatalf("a guest that fails: %+v", got)
		}
	}
	finds(t, 3, []string{"entities-quarantined warning"})
	if got := hostd(t, "node", "drain", node.NodeID, "--timeout", "2s"); got.code != cli.ExitFailed {
		t.Fatalf("drain: %+v", got)
	}
	finds(t, 3, []string{"order-pending warning", "node-drained note"})
	table := hostd(t, "doctor")
	if table.code != 3 || !strings.Contains(table.out, "WARNING  type faulty: 1 of its entities are quarantined") || !strings.Contains(table.out, "    hostd entity clear faulty --all\n") {
		t.Errorf("%+v", table)
	}
	// The commands that it prints fix the findings.
	for _, mend := range []string{"node resume " + node.NodeID, "entity clear faulty --all"} {
		if got := hostd(t, strings.Fields(mend)...); got.code != cli.ExitDone {
			t.Errorf("%s: %+v", mend, got)
		}
	}
	if e := examine(t); e.has("entities-quarantined", doctor.Warning) || e.has("node-drained", doctor.Note) {
		t.Errorf("it is mended: %+v", e.Findings)
	}
}

// TestDoctorChecksAConfiguration checks files of this machine, with and without
// a running node.
func TestDoctorChecksAConfiguration(t *testing.T) {
	dir := t.TempDir()
	node := serving(t, "", dir, "--listen", "127.0.0.1:0")
	t.Setenv("HOSTD_ADDR", node.API)
	file := filepath.Join(dir, "hostd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("data-dir: "+node.DataDir+"\nlisten: "+strings.TrimPrefix(node.API, "http://")+"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	if e := examine(t, "--config", file); e.has("configuration-invalid", doctor.Critical) {
		t.Errorf("a running node uses its own ports and directory: %+v", e.Findings)
	}
	write("module-trust-file: /nowhere\n")
	finds(t, 4, []string{"configuration-invalid critical"}, "--config", file)
	write("no-such-key: 1\n")
	if got := hostd(t, "doctor", "--config", file); got.code != cli.ExitUsage {
		t.Errorf("%+v", got)
	}
	t.Setenv("HOSTD_DATADIR", "/x")
	write("")
	finds(t, 3, []string{"environment-variable-unknown warning"}, "--config", file)
}

// TestDoctorNamesNodesThatFailed kills two of three nodes, one after the
// other, and checks that doctor names them.
func TestDoctorNamesNodesThatFailed(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"n1", "n2", "n3"} {
		testkit.ShareCache(t, filepath.Join(dir, "data", id))
	}
	ports := filepath.Join(dir, "ports.json")
	dev := start(t, "dev", "--nodes", "3", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "3", "--ports-file", ports, "--module", counterFile(t))
	nodes := dev.allReady(t, ports)
	t.Setenv("HOSTD_ADDR", apisOf(nodes))
	eventually(t, "nothing is wrong with three nodes", func() bool {
		e := examine(t)
		return !slices.ContainsFunc(e.Findings, func(f doctor.Finding) bool { return f.Severity == doctor.Critical || f.ID == "replicas-missing" })
	})
	kill := func(i int) {
		t.Helper()
		if err := syscall.Kill(nodes[i].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	kill(2)
	finds(t, 4, []string{"node-unreachable critical", "replicas-missing warning"})
	kill(1)
	finds(t, 4, []string{"node-unreachable critical", "shard-without-majority critical", "metadata-without-quorum critical"})
	kill(0)
	finds(t, 4, []string{"cluster-unreachable critical"})
}

// TestDoctorSeesAFullDisk checks that doctor reports a node whose disk is
// full.
func TestDoctorSeesAFullDisk(t *testing.T) {
	disk := testkit.NewSmallDisk(t, 512<<20)
	// With this flag the node counts its disk as full below 32 MiB of free
	// space.
	node := serving(t, "", disk.Dir(), "--listen", "127.0.0.1:0", "--disk-read-only-bytes", "32MiB", "--disk-read-only-percent", "1")
	t.Setenv("HOSTD_ADDR", node.API)
	if e := examine(t); e.has("disk-full", doctor.Critical) {
		t.Fatalf("%+v", e)
	}
	disk.Fill("ballast", 16<<20)
	finds(t, 4, []string{"disk-full critical"})
}

// TestDoctorReadsCertificates checks that doctor reports a certificate that
// ends in three days.
func TestDoctorReadsCertificates(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(3 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := serving(t, "", dir, "--listen", "127.0.0.1:0", "--tls-mode", "require", "--tls-cert-file", certFile, "--tls-key-file", keyFile)
	finds(t, 3, []string{"certificate-expires warning"}, "--addr", node.API, "--cacert", certFile)
	finds(t, 4, []string{"cluster-unreachable critical"}, "--addr", node.API)
}

// TestSignalsOfANode checks that SIGUSR1 logs what the node does and SIGHUP does
// not end it, and that it ends after SIGTERM.
func TestSignalsOfANode(t *testing.T) {
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ports := filepath.Join(dir, "ports.json")
	var stderr lockedBuffer
	node := exec.Command(program, "serve", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "2", "--ports-file", ports)
	node.Stderr = &stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Process.Kill() }()
	eventually(t, "the node is ready", func() bool { _, err := devcluster.ReadPorts(ports); return err == nil })
	for range 3 {
		for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1} {
			if err := node.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "the state is logged", func() bool {
		said := stderr.String()
		for _, want := range []string{"SIGHUP: nothing to reload", `"msg":"goroutines","count":`, `"msg":"goroutine stack"`, `"msg":"node state","ready":"ready"`, `"msg":"shard state","placed":true,"replicas":`, `"msg":"executor state","executor":0`, `"msg":"queue state","requests_waiting":`} {
			if !strings.Contains(said, want) {
				return false
			}
		}
		return true
	})
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := node.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	if !bytes.Contains([]byte(stderr.String()), []byte("host.")) {
		t.Errorf("no function of the node is in the stacks:\n%s", stderr.String())
	}
}

// TestBlockedLogDoesNotDelayExit checks that a node ends although nobody
// reads its standard error, and SIGUSR1 has filled it.
func TestBlockedLogDoesNotDelayExit(t *testing.T) {
	t.Parallel() // it waits for the grace period
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unread, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	ports := filepath.Join(dir, "ports.json")
	node := exec.Command(program, "serve", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "2", "--ports-file", ports, "--stop-timeout", "1s")
	node.Stderr = stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.Close()
	defer func() { _ = node.Process.Kill() }()
	eventually(t, "the node is ready", func() bool { _, err := devcluster.ReadPorts(ports); return err == nil })
	eventually(t, "the pipe is full", func() bool {
		_ = node.Process.Signal(syscall.SIGUSR1)
		n, err := unix.IoctlGetInt(int(unread.Fd()), unix.TIOCINQ)
		return err == nil && n > 60<<10
	})
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the node does not end")
	}
}
