package devcluster

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/loopback"
)

func TestChooseAddrs(t *testing.T) {
	// A range of ports of which the second is in use.
	host := loopback.Host()
	taken, err := net.Listen("tcp", host+":7071")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got, holds, err := chooseAddrs(host+":7070", 3)
	defer func() { (&chosen{holds: holds}).release() }()
	if err != nil || len(got) != 3 || got[0] != host+":7070" || slices.Contains(got, taken.Addr().String()) {
		t.Errorf("got %v, %v; taken is %s", got, err, taken.Addr())
	}
	var hinted *cli.HintedError
	if got, _, err := chooseAddrs(taken.Addr().String(), 2); !errors.As(err, &hinted) || !strings.Contains(hinted.Next, "--listen") {
		t.Errorf("a first port that is taken: %v, %v", got, err)
	}
	free, anyPorts, err := chooseAddrs("127.0.0.1:0", 5)
	defer func() { (&chosen{holds: anyPorts}).release() }()
	slices.Sort(free)
	if err != nil || len(slices.Compact(free)) != 5 || slices.Contains(free, "127.0.0.1:0") {
		t.Errorf("any ports: %v, %v", free, err)
	}
	if one, _, err := chooseAddrs("127.0.0.1:0", 1); err != nil || one[0] != "127.0.0.1:0" {
		t.Errorf("one node: %v, %v", one, err)
	}
	every, held, err := chooseAddrs(":0", 2)
	defer func() { (&chosen{holds: held}).release() }()
	if err != nil || len(every) != 2 || !strings.HasPrefix(every[0], "[::]:") {
		t.Errorf("ports of every interface: %v, %v", every, err)
	}
	for _, bad := range []string{"127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"} {
		var usage *cli.UsageError
		if got, _, err := chooseAddrs(bad, 2); !errors.As(err, &usage) {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
}

// Chosen ports stay reserved for the nodes: no other process gets them, and a
// node can listen on its own port repeatedly.
func TestChosenPortsStayReserved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports are held on Linux only")
	}
	first, err := choose(loopback.Host()+":0", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	second, err := choose(first.clients[0], 3)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	for _, addr := range slices.Concat(second.clients, second.peers)[1:] { // the first was requested by number
		if slices.Contains(slices.Concat(first.clients, first.peers), addr) {
			t.Errorf("%s is chosen again", addr)
		}
	}
	for range 3 {
		l, err := net.Listen("tcp", first.clients[0])
		if err != nil {
			t.Fatalf("its node does not get it: %v", err)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		peer.Close() // and its connection is in TIME_WAIT
		conn.Close()
		l.Close()
	}
	if err := errors.Join(first.release(), second.release()); err != nil {
		t.Error(err)
	}
	again, err := choose(first.clients[0], 1)
	if err != nil || again.clients[0] != first.clients[0] {
		t.Errorf("let go of: %v, %v", again, err)
	}
	again.release()
	again, err = choose(first.clients[0], 3)
	if err != nil || again.clients[0] != first.clients[0] {
		t.Errorf("let go of: %v, %v", again, err)
	}
	if err == nil {
		again.release()
	}
}

// A node that has lost its data must find the other nodes instead of
// bootstrapping a second cluster.
func TestOnlyEmptyClusterIsBootstrapped(t *testing.T) {
	addrs := []string{"a:1", "b:2", "c:3"}
	if got := clusterFlags(addrs[:1], 0, true); len(got) != 0 {
		t.Errorf("one node: %q", got)
	}
	for own := range addrs {
		for _, found := range []bool{true, false} {
			flags := clusterFlags(addrs, own, found)
			if slices.Contains(flags, "--bootstrap") != (found && own == 0) {
				t.Errorf("node %d, founding %v: %q", own, found, flags)
			}
			if at := slices.Index(flags, "--peer-listen"); at < 0 || flags[at+1] != addrs[own] {
				t.Errorf("node %d serves other nodes by %q", own, flags)
			}
			if seeds := flags[slices.Index(flags, "--seeds")+1]; strings.Contains(seeds, addrs[own]) || strings.Count(seeds, ",") != 1 {
				t.Errorf("node %d: seeds %s", own, seeds)
			}
		}
	}
	data := t.TempDir()
	for _, d := range []string{"n2", "n7"} {
		if err := os.MkdirAll(filepath.Join(data, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(data, "n2", "node.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := bootstrapNodes(data); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestSpread(t *testing.T) {
	nodes := []string{"n1", "n2", "n3"}
	shards := func(voters int, leaders ...string) []*clusterv1.Shard {
		out := []*clusterv1.Shard{{ShardId: 0, Leader: "n1", Voters: nodes[:1], Learners: nodes[1:]}}
		for i, l := range leaders {
			out = append(out, &clusterv1.Shard{ShardId: uint32(i + 1), Leader: l, Voters: nodes[:voters]})
		}
		return out
	}
	learner := shards(1, "n1", "n2", "n1", "n2")
	for i := range learner {
		learner[i].Learners = nodes[1:2]
	}
	for _, tt := range []struct {
		name   string
		shards []*clusterv1.Shard
		nodes  []string
		fault  string
	}{
		{"nothing", nil, nodes, "no shard"},
		{"even", shards(3, "n1", "n2", "n3"), nodes, ""},
		{"nearly even", shards(3, "n1", "n1", "n1", "n2", "n2", "n3"), nodes, ""},
		{"no leader", shards(3, "n1", "", "n3"), nodes, "1 of 4 shards have no leader"},
		{"two voters", shards(2, "n1", "n2", "n3"), nodes, "3 of 3 shards have fewer than 3 replicas"},
		{"all on one", shards(3, "n1", "n1", "n1"), nodes, "n2 leads 0 of 3"},
		{"fewer shards than nodes", shards(3, "n1"), nodes, ""},
		{"one node", shards(1, "n1"), nodes[:1], ""},
		{"two nodes, one only follows", learner, nodes[:2], ""},
		{"two nodes, one replica", shards(1, "n1", "n2"), nodes[:2], "fewer than 2 replicas"},
	} {
		err := NotSpread(tt.shards, tt.nodes)
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.fault)
		}
	}
}

func TestPrefixWriterKeepsLinesWhole(t *testing.T) {
	var out strings.Builder
	p := &prefixWriter{prefix: "n1 | ", w: &out}
	for _, part := range []string{"a", "b\nc\n", "", "\n", "d"} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := out.String(); got != "n1 | ab\nn1 | c\nn1 | \n" {
		t.Errorf("got %q", got)
	}
	out.Reset()
	p.Write([]byte(strings.Repeat("x", 3*maxLineBytes)))
	if len(p.line) > maxLineBytes || !strings.HasPrefix(out.String(), "n1 | dx") {
		t.Errorf("a line without an end: %d bytes kept", len(p.line))
	}
}

func TestPortsFileIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports.json")
	for _, id := range []string{"n1", "n2"} {
		if err := WritePorts(path, PortsFile{Nodes: []NodeInfo{{NodeID: id, API: "http://127.0.0.1:1", PID: 1, DataDir: "/d"}}}); err != nil {
			t.Fatal(err)
		}
		p, err := ReadPorts(path)
		if err != nil || len(p.Nodes) != 1 || p.Nodes[0].NodeID != id {
			t.Fatalf("read %+v, %v", p, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCleanDataKeepsOtherFiles(t *testing.T) {
	data := t.TempDir()
	for _, f := range []string{"n1/node.json", "n1/wal/1.wal", "n2/other.txt", "notes/node.json"} {
		path := filepath.Join(data, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := cleanData(data); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[string]bool{"n1": false, "n2/other.txt": true, "notes/node.json": true} {
		if _, err := os.Stat(filepath.Join(data, f)); (err == nil) != want {
			t.Errorf("%s: %v", f, err)
		}
	}
}
