package coordinator_test

import (
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// collecting is a single-node cluster with its coordinator.
type collecting struct {
	t     *testing.T
	state *meta.State
	coord *coordinator.Coordinator
	now   time.Time
	index uint64
}

func newCollecting(t *testing.T, level sharding.ClusterVersion) *collecting {
	t.Helper()
	c := &collecting{t: t, state: meta.New(), coord: coordinator.New(coordinator.Options{}), now: time.Unix(1_700_000_000, 0)}
	founder := meta.Member{Node: "n1", Address: "n1:1", Status: meta.StatusUp, Disk: "d", Incarnation: 1}
	if level > sharding.Version1 {
		founder.Speaks = sharding.VersionRange{Min: 1, Max: level}
	}
	c.do(meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1}, founder))
	return c
}

func (c *collecting) do(commands ...[]byte) {
	c.t.Helper()
	for _, command := range commands {
		c.index++
		_, result, err := c.state.Apply(c.index, command)
		if err == nil {
			_, err = meta.DecodeResult(result)
		}
		if err != nil {
			c.t.Fatalf("%s: %v", command, err)
		}
	}
}

// pass advances the clock with one step per second and applies the commands.
func (c *collecting) pass(d time.Duration) (commands int) {
	c.t.Helper()
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(time.Second) {
		plan := c.coord.Step(coordinator.Input{Now: c.now, View: c.state.View(), Reachable: map[sharding.NodeID]bool{"n1": true}})
		commands += len(plan.Commands)
		c.do(plan.Commands...)
	}
	return commands
}

func (c *collecting) module(n byte) meta.Module {
	return meta.Module{Digest: meta.Digest{n}, Size: 1, Name: "m", EntityTypes: []string{"a"}, UploadedAt: int64(n)}
}

// The coordinator removes modules after they have been unused for the retention
// period, not before.
func TestUnusedModulesAreRemoved(t *testing.T) {
	c := newCollecting(t, sharding.VersionModuleRetention)
	c.do(meta.PutSetting(meta.SettingModuleRetention, []byte("100s")))
	c.pass(time.Minute)
	c.do(meta.PutModule(c.module(1)), meta.PutModule(c.module(2)), meta.PutModule(c.module(3)), meta.Bind("a", meta.Digest{1}, 1), meta.Bind("a", meta.Digest{2}, 1))
	pushed := c.now.UnixNano()
	if n := c.pass(100 * time.Second); n != 1 {
		t.Errorf("%d commands note since when one module is not needed", n)
	}
	m, known := c.state.View().Module(meta.Digest{3})
	if !known || m.UnusedSince < pushed || m.UnusedSince > pushed+int64(10*time.Second) {
		t.Fatalf("it is not needed since %d, was pushed at %d: %v", m.UnusedSince, pushed, known)
	}
	// A new coordinator continues.
	c.coord = coordinator.New(coordinator.Options{})
	if n := c.pass(30 * time.Second); n != 1 {
		t.Errorf("%d commands remove one module", n)
	}
	if _, known := c.state.View().Module(meta.Digest{3}); known {
		t.Error("a module that nothing needs is there")
	}
	if n := c.pass(10 * time.Minute); n != 0 {
		t.Errorf("%d commands when all is done", n)
	}
	for n := range byte(2) {
		if _, known := c.state.View().Module(meta.Digest{n + 1}); !known {
			t.Errorf("module %d is gone, which is needed", n+1)
		}
	}
	c.do(meta.PutSetting(meta.SettingModuleRetention, []byte("off")), meta.PutModule(c.module(3)))
	if n := c.pass(time.Hour); n != 1 {
		t.Errorf("%d commands, where modules stay for ever", n)
	}
}

// At version 1 modules are neither removed nor marked as unused.
func TestModulesAreKeptAtVersion1(t *testing.T) {
	c := newCollecting(t, sharding.Version1)
	c.do(meta.PutModule(c.module(1)))
	if n := c.pass(40 * 24 * time.Hour / 1000); n != 0 {
		t.Errorf("%d commands", n)
	}
}
