package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/tests/support/testkit"
)

// Three nodes for development: a node that dies stays down and the other
// nodes continue, an interrupt stops all of them, and when they are started
// again, the cluster continues at other addresses.
func TestDevelopmentCluster(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	dev := []string{"dev", "--nodes", "3", "--data", data, "--listen", "127.0.0.1:0", "--shards", "3", "--log-level", "info", "--ports-file"}
	for _, id := range []string{"n1", "n2", "n3"} {
		testkit.ShareCache(t, filepath.Join(data, id))
	}
	ports := filepath.Join(dir, "first.json")
	first := start(t, append(dev, ports, "--module", counterFile(t))...)
	nodes := first.allReady(t, ports)
	if len(nodes) != 3 {
		t.Fatalf("ports file: %+v", nodes)
	}
	for i, n := range nodes {
		if n.NodeID != fmt.Sprintf("n%d", i+1) || n.DataDir != filepath.Join(data, n.NodeID) || syscall.Kill(n.PID, 0) != nil {
			t.Errorf("node %d: %+v", i+1, n)
		}
		shards := shardsAt(t, n.API)
		if err := devcluster.NotSpread(shards, []string{"n1", "n2", "n3"}); err != nil || len(shards) != 4 {
			t.Errorf("%s was told to be ready: %v, %+v", n.NodeID, err, shards)
		}
	}
	t.Setenv("HOSTD_ADDR", apisOf(nodes))
	asJSON, table := hostd(t, "node", "ls", "-o", "json"), hostd(t, "node", "ls")
	var listed struct {
		Members []struct{ NodeID, Address, PeerAddress string }
	}
	if err := json.Unmarshal([]byte(asJSON.out), &listed); err != nil || len(listed.Members) != len(nodes) || !strings.Contains(table.out, "PEER ADDRESS") {
		t.Fatalf("%v: %+v, %+v", err, asJSON, table)
	}
	for i, m := range listed.Members {
		if m.NodeID != nodes[i].NodeID || m.PeerAddress != nodes[i].Peer || m.PeerAddress == m.Address || !strings.Contains(table.out, m.PeerAddress) {
			t.Errorf("node ls: %+v of %+v\n%s", m, nodes[i], table.out)
		}
	}
	addCounter(t, 1)

	// Kill the last node.
	if err := syscall.Kill(nodes[2].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dev says that a node ended", func() bool {
		return strings.Contains(first.err.String(), fmt.Sprintf("node n3 (pid %d) exited", nodes[2].PID))
	})
	t.Setenv("HOSTD_ADDR", apisOf(nodes[:2]))
	addCounter(t, 2)
	first.interrupt()
	if code := first.end(t); code != cli.ExitDone {
		t.Fatalf("interrupted dev: exit code %d, %s", code, first.err.String())
	}
	for _, n := range nodes {
		if got := hostd(t, "verify", n.DataDir); got.code != cli.ExitDone {
			t.Errorf("verify %s: %+v", n.NodeID, got)
		}
	}

	if got := hostd(t, "dev", "--data", data, "--listen", "127.0.0.1:0"); got.code != cli.ExitFailed || !strings.Contains(got.err, "--nodes 3") {
		t.Errorf("one of three nodes: %+v", got)
	}
	ports = filepath.Join(dir, "second.json")
	second := start(t, append(dev, ports)...)
	again := second.allReady(t, ports)
	if slices.ContainsFunc(again, func(n devcluster.NodeInfo) bool { return n.API == nodes[0].API }) {
		t.Log("the ports happen to be the same") // the system chose them
	}
	t.Setenv("HOSTD_ADDR", apisOf(again))
	addCounter(t, 3)
	cluster := decode[clusterView](t, hostd(t, "cluster", "status", "-o", "json").out)
	for i, m := range cluster.Members {
		if "http://"+m.Address != again[i].API || !m.Reachable || m.Status != "up" {
			t.Errorf("after the restart: %+v, listens at %s", m, again[i].API)
		}
	}
	second.interrupt()
	if code := second.end(t); code != cli.ExitDone {
		t.Errorf("interrupted dev: exit code %d, %s", code, second.err.String())
	}
}

// shardsAt returns the shards as a node sees them.
func shardsAt(t *testing.T, api string) []*clusterv1.Shard {
	t.Helper()
	c, err := client.Dial(api)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	shards, err := c.Shards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return shards
}

func apisOf(nodes []devcluster.NodeInfo) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.API)
	}
	return strings.Join(out, ",")
}

// addCounter adds one to some counters in different shards.
func addCounter(t *testing.T, want int) {
	t.Helper()
	for i := range 6 {
		got := hostd(t, "entity", "send", "counter", fmt.Sprint("c", i), "add", `{"amount":1}`, "--timeout", "60s")
		if got.code != cli.ExitDone || got.out != fmt.Sprintf("{\"total\":%d}\n", want) {
			t.Fatalf("counter %d: %+v, want %d", i, got, want)
		}
	}
}
