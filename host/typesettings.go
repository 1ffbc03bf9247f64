package host

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Settings whose keys are entity.TYPE.NAME are about an entity type, and take
// the place of what its module says. The names:
//
//	passivate-after    how long an entity may be idle before it leaves memory,
//	                   such as 90s or 30m, or never
//	retain-events      which events stay when a snapshot is taken: the last so
//	                   many, or snapshots or all
//	retain-snapshots   how many snapshots of an entity stay
const (
	typeSettings        = "entity."
	passivateName       = "passivate-after"
	retainEventsName    = "retain-events"
	retainSnapshotsName = "retain-snapshots"

	neverIdle       = "never"
	retainAll       = "all"
	retainSnapshots = "snapshots"
	// shortestIdle is how fine a lane knows when an entity was last asked for.
	shortestIdle = 100 * time.Millisecond
)

// overrides are the settings of one entity type.
type overrides struct {
	idle    time.Duration // 0: not set; negative is never
	keeping entity.Keeping
}

// set takes one setting in.
func (o *overrides) set(name, value string) (err error) {
	switch name {
	case passivateName:
		o.idle, err = parseIdle(value)
	case retainEventsName:
		o.keeping.Records, err = parseRetention(value)
		o.keeping.RecordsSet = err == nil
	case retainSnapshotsName:
		o.keeping.Snapshots, err = parseCount(value, manifest.MaxRetainSnapshots)
	default:
		err = fmt.Errorf("keys that begin with %s are %sTYPE.%s, %s and %s", typeSettings, typeSettings, passivateName, retainEventsName, retainSnapshotsName)
	}
	return err
}

// settingsOfTypes are the settings about entity types, as this node knows them.
type settingsOfTypes struct {
	of    atomic.Pointer[map[string]overrides]
	moved func() // told when they have changed
}

func newSettingsOfTypes() *settingsOfTypes {
	t := &settingsOfTypes{}
	t.of.Store(&map[string]overrides{})
	return t
}

// idleAfter returns the idle time that is set for a type; negative is never.
func (t *settingsOfTypes) idleAfter(entityType string) (time.Duration, bool) {
	d := (*t.of.Load())[entityType].idle
	return d, d != 0
}

// keeping returns what is set of how much a type's entities keep.
func (t *settingsOfTypes) keeping(entityType string) entity.Keeping {
	return (*t.of.Load())[entityType].keeping
}

// learn takes the settings of a view.
func (t *settingsOfTypes) learn(view *meta.View) {
	next := make(map[string]overrides)
	for _, key := range view.SettingKeys() {
		entityType, name, ok := typeSetting(key)
		if !ok {
			continue
		}
		if s, ok := view.Setting(key); ok {
			// One that a newer release knows, and this one does not, leaves the others.
			if o := next[entityType]; o.set(name, string(s.Value)) == nil {
				next[entityType] = o
			}
		}
	}
	if !maps.Equal(next, *t.of.Load()) {
		t.of.Store(&next)
		t.moved()
	}
}

// typeSetting returns what a setting's key is about.
func typeSetting(key string) (entityType, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, typeSettings)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
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

// parseRetention returns a retention as snapshots carry it.
func parseRetention(text string) (uint64, error) {
	switch text {
	case retainAll:
		return manifest.RetainAll.Snapshots(), nil
	case retainSnapshots:
		return manifest.RetainSnapshots.Snapshots(), nil
	}
	n, err := parseCount(text, manifest.MaxRetain)
	if err != nil {
		return 0, fmt.Errorf("%w, and not %q or %q", err, retainAll, retainSnapshots)
	}
	return manifest.Retention(n).Snapshots(), nil
}

func parseCount(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%.32q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

// checkSetting refuses a setting about entity types that says nothing. An empty
// value deletes one, whatever it was.
func checkSetting(key, value string) error {
	if value == "" || !strings.HasPrefix(key, typeSettings) {
		return nil
	}
	entityType, name, ok := typeSetting(key)
	if !ok || (sharding.EntityID{Type: entityType, ID: "x"}).Validate() != nil {
		name = "" // that is none of them
	}
	return new(overrides).set(name, value)
}

// followSettings keeps the settings of types up to the metadata.
func (n *Node) followSettings(ctx context.Context) {
	var seen uint64
	for {
		changed := n.metadata.Changed()
		if view := n.metadata.View(); view.SettingRevision() != seen {
			n.typeSettings.learn(view)
			seen = view.SettingRevision()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
