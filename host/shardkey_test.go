package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// startCluster runs n nodes in this process and returns when every shard has a
// leader. The nodes stop at the end of the test.
func startCluster(t *testing.T, n int, shards uint32) []*host.Node {
	t.Helper()
	return startClusterWith(t, n, shards, func(*config.Config) {})
}

// startClusterWith is startCluster with a changed configuration.
func startClusterWith(t *testing.T, n int, shards uint32, change func(*config.Config)) []*host.Node {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = loopback.Host() + ":7070"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	// The node that bootstraps the cluster waits for its seeds, so all nodes
	// start concurrently.
	nodes, errs := make([]*host.Node, n), make([]error, n)
	var starting sync.WaitGroup
	for i := range nodes {
		cfg := config.Default()
		cfg.DataDir, cfg.Listen, cfg.Shards, cfg.Admin = t.TempDir(), addrs[i], shards, config.AdminFull
		testkit.ShareCache(t, cfg.DataDir)
		cfg.NodeID, cfg.Bootstrap, cfg.MinMembers = sharding.NodeID(fmt.Sprint("n", i+1)), i == 0 && n > 1, n
		for k, a := range addrs {
			if k != i {
				cfg.Seeds = append(cfg.Seeds, a)
			}
		}
		change(&cfg)
		starting.Go(func() { nodes[i], errs[i] = host.Start(ctx, cfg, slog.New(slog.DiscardHandler)) })
	}
	starting.Wait()
	for _, node := range nodes {
		if node != nil {
			t.Cleanup(func() { stop(t, node) })
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		for !node.Ready() {
			if ctx.Err() != nil {
				t.Fatal("the cluster never became ready")
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nodes
}

func dialNode(t *testing.T, n *host.Node) *client.Client {
	t.Helper()
	c, err := client.New([]string{n.Addr()}, client.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// keyedModule builds a module with the given entity types. Every command emits
// an event.
func keyedModule(version string, types ...string) []byte {
	return guest.Module{Good: "unused", Manifest: `{"abi":1,"name":"keyed","version":"` + version + `","entityTypes":[` + strings.Join(types, ",") + `]}`}.Build()
}

func keyedType(name, key string) string {
	t := `{"name":"` + name + `","kind":"event-sourced","encoding":"bytes"`
	if key != "" {
		t += `,"shardKey":` + key
	}
	return t + "}"
}

// TestShardKeysPlaceEntities: entities with the same key are in the same shard,
// for all types of the group, on all nodes and after a restart. No later module
// may change that.
func TestShardKeysPlaceEntities(t *testing.T) {
	const shards = 16
	nodes := startCluster(t, 3, shards)
	ctx := t.Context()
	c := dialNode(t, nodes[0])
	account, transfer := keyedType("account", ""), keyedType("transfer", `{"group":"account","until":"-"}`)
	if _, err := c.Upload(ctx, keyedModule("1", account, transfer, keyedType("plain", "")), true); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for i := range 12 {
		customer := fmt.Sprint("c", i)
		want := uint32(sharding.ShardOf(sharding.EntityID{Type: "account", ID: customer}, shards))
		seen[want] = true
		c := dialNode(t, nodes[i%3])
		for _, e := range [][2]string{{"account", customer}, {"transfer", customer + "-t1"}, {"transfer", customer + "-t2"}} {
			if _, err := c.Send(ctx, client.Command{EntityType: e[0], EntityID: e[1], Name: "do"}); err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				got, err := dialNode(t, n).Entity(ctx, e[0], e[1])
				if err != nil || got.GetShardId() != want || got.GetSequence() != 1 {
					t.Errorf("%v: %v %v, want shard %d", e, got, err, want)
				}
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("12 customers are in %d shards", len(seen))
	}
	for _, key := range []string{"", `{"group":"account"}`, `{"until":"-"}`, `{"group":"account","until":"/"}`} {
		_, err := c.Upload(ctx, keyedModule("2", keyedType("transfer", key)), true)
		if client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "shard key") {
			t.Errorf("another shard key %s: %v", key, err)
		}
	}
	if _, err := c.Upload(ctx, keyedModule("3", transfer), true); err != nil {
		t.Errorf("the same shard key: %v", err)
	}
	s := c.Stream(client.StreamOptions{})
	for i := range 12 {
		if _, err := s.Call(ctx, client.Command{EntityType: "transfer", EntityID: fmt.Sprintf("c%d-t1", i), Name: "do"}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	for i := range 12 {
		if got, err := c.Entity(ctx, "transfer", fmt.Sprintf("c%d-t1", i)); err != nil || got.GetSequence() != 2 {
			t.Errorf("%v %v", got, err)
		}
	}
}
