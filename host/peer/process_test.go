//go:build unix

package peer_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
)

// peerProcess is set in a process of this test that is itself a node.
const peerProcess = "HOSTD_TEST_PEER_OF"

func TestMain(m *testing.M) {
	if of := os.Getenv(peerProcess); of != "" {
		beNode(of)
		return
	}
	os.Exit(m.Run())
}

// beNode runs node b for another process's node a until its input ends.
func beNode(addressOfA string) {
	t := &testing.T{}
	b := start(t, network.TCP{}, "127.0.0.1:0", "b")
	b.SetAddresses(map[sharding.NodeID]string{"a": addressOfA})
	fmt.Println(b.addr)
	io.Copy(io.Discard, os.Stdin)
}

// A process that is stopped with SIGSTOP keeps its connections and its port. It
// is suspected nevertheless, and counts as alive again when it continues.
func TestStoppedProcess(t *testing.T) {
	a := start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerProcess+"="+a.addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGCONT)
		in.Close()
		cmd.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	a.SetAddresses(map[sharding.NodeID]string{"b": strings.TrimSpace(address)})
	last := func() string {
		if s := a.state["b"]; len(s) > 0 {
			return s[len(s)-1]
		}
		return ""
	}
	for range 2 {
		a.until(t, "b to be heard", func() bool { return last() == "heard" })
		cmd.Process.Signal(syscall.SIGSTOP)
		a.until(t, "b to be silent", func() bool { return last() == "silent" })
		cmd.Process.Signal(syscall.SIGCONT)
	}
	a.until(t, "b to be heard", func() bool { return last() == "heard" })
	in.Close()
	a.until(t, "b to be silent", func() bool { return last() == "silent" })
}
