package host

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Settings whose keys begin with typeSettings are about entity types, and take
// the place of what a module says: entity.TYPE.passivate-after is how long an
// entity of the type may be idle before it leaves memory, such as 90s or 30m,
// or neverIdle.
const (
	typeSettings  = "entity."
	passivateName = "passivate-after"
	neverIdle     = "never"
	// shortestIdle is how fine a lane knows when an entity was last asked for.
	shortestIdle = 100 * time.Millisecond
)

// idleTimes are the settings of idle times, by type, as this node knows them.
type idleTimes struct {
	of    atomic.Pointer[map[string]time.Duration]
	moved func() // told when they have changed
}

func newIdleTimes() *idleTimes {
	t := &idleTimes{}
	t.of.Store(&map[string]time.Duration{})
	return t
}

// after returns the idle time that is set for a type; negative is never.
func (t *idleTimes) after(entityType string) (time.Duration, bool) {
	d, ok := (*t.of.Load())[entityType]
	return d, ok
}

// learn takes the settings of a view.
func (t *idleTimes) learn(view *meta.View) {
	next := make(map[string]time.Duration)
	for _, key := range view.SettingKeys() {
		entityType, ok := idleType(key)
		if !ok {
			continue
		}
		if s, ok := view.Setting(key); ok {
			if d, err := parseIdle(string(s.Value)); err == nil {
				next[entityType] = d
			}
		}
	}
	if !maps.Equal(next, *t.of.Load()) {
		t.of.Store(&next)
		t.moved()
	}
}

// idleType returns the type that a setting's key is about.
func idleType(key string) (entityType string, ok bool) {
	rest, ok := strings.CutPrefix(key, typeSettings)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "."+passivateName)
}

func parseIdle(text string) (time.Duration, error) {
	if text == neverIdle {
		return -1, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestIdle || d > manifest.MaxPassivate {
		return 0, fmt.Errorf("%q is not a time from %v to %v, such as 90s or 30m, and not %q", text, shortestIdle, manifest.MaxPassivate, neverIdle)
	}
	return d, nil
}

// checkSetting refuses a setting about entity types that says nothing. An empty
// value deletes one, whatever it was.
func checkSetting(key, value string) error {
	if value == "" || !strings.HasPrefix(key, typeSettings) {
		return nil
	}
	entityType, ok := idleType(key)
	if !ok || (sharding.EntityID{Type: entityType, ID: "x"}).Validate() != nil {
		return fmt.Errorf("keys that begin with %s are %sTYPE.%s", typeSettings, typeSettings, passivateName)
	}
	_, err := parseIdle(value)
	return err
}

// followSettings keeps the idle times up to the metadata.
func (n *Node) followSettings(ctx context.Context) {
	var seen uint64
	for {
		changed := n.metadata.Changed()
		if view := n.metadata.View(); view.SettingRevision() != seen {
			n.idle.learn(view)
			seen = view.SettingRevision()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
