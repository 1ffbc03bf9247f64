package meta

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Settings about modules; from sharding.LevelModuleRetention on. One that is
// not set, or that CheckModuleSetting would refuse, is its default.
const (
	// SettingModuleRetention is how long a module stays that nothing needs: a
	// number of days such as 30d, a time such as 36h, or off.
	SettingModuleRetention = "module-retention"
)

// Bounds and default of SettingModuleRetention. A module is pushed before it is
// bound: the least one gives that the time.
const (
	DefaultModuleRetention = 30 * day
	minModuleRetention     = time.Second
	maxModuleRetention     = 3650 * day
	day                    = 24 * time.Hour
)

// maxCollected bounds the modules that one command changes.
const maxCollected = 64

// CheckModuleSetting refuses a setting about modules that says nothing; every
// other one passes.
func CheckModuleSetting(key, value string) (err error) {
	if key == SettingModuleRetention {
		_, err = parseRetention(value)
	}
	return err
}

// ModuleRetention is how long a module stays that nothing needs; 0 is for ever.
func (v *View) ModuleRetention() time.Duration {
	if s, set := v.settings[SettingModuleRetention]; set {
		if d, err := parseRetention(string(s.Value)); err == nil {
			return d
		}
	}
	return DefaultModuleRetention
}

func parseRetention(text string) (time.Duration, error) {
	if text == "off" || text == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if number, days := strings.CutSuffix(text, "d"); days {
		var n uint64
		n, err = strconv.ParseUint(number, 10, 16)
		d = time.Duration(n) * day
	}
	if err != nil || d < minModuleRetention || d > maxModuleRetention {
		return 0, fmt.Errorf("%.32q is not a time from %v to %dd, such as 36h or 30d, and not off", text, minModuleRetention, maxModuleRetention/day)
	}
	return d, nil
}

// CollectModules makes the command that notes since when modules are not
// needed, and has those forgotten that were not for ModuleRetention, from
// sharding.LevelModuleRetention on. at is now, in unix nanoseconds. It changes
// few at a time: where StaleModules holds of the view after it, it is to be
// made again. The result names those that it removed.
func CollectModules(at int64) []byte { return encode(command{Op: opCollectModules, At: at}) }

// StaleModules says whether CollectModules would change anything.
func (v *View) StaleModules(at int64) bool {
	unused, old := v.stale(at)
	return len(unused)+len(old) > 0
}

// stale are the modules that nothing needs, and that are not known as such yet,
// or are for so long that they go.
func (v *View) stale(at int64) (unused []Module, old []Digest) {
	needed, retention := v.needed(), v.ModuleRetention()
	for _, m := range v.Modules() {
		switch {
		case needed[m.Digest] || len(unused)+len(old) == maxCollected:
		case m.UnusedSince == 0:
			unused = append(unused, m)
		case retention > 0 && time.Duration(at-m.UnusedSince) >= retention:
			old = append(old, m.Digest)
		}
	}
	return unused, old
}

// digests are those of the modules that a binding needs: what serves, and what
// rollbacks may come back to.
func (b *Binding) digests() []Digest {
	out := []Digest{b.Digest}
	for i := range b.History {
		out = append(out, b.History[i].Digest)
	}
	return out
}

// needed are the modules that some entity type needs.
func (v *View) needed() map[Digest]bool {
	out := make(map[Digest]bool, len(v.bindings))
	for _, b := range v.bindings {
		for _, digest := range b.digests() {
			out[digest] = true
		}
	}
	return out
}

// NeededBy returns an entity type that needs a module, and whether the module
// serves it or is one that rollbacks of it may come back to.
func (v *View) NeededBy(digest Digest) (entityType string, serves, needed bool) {
	for _, b := range v.Bindings() {
		if b.Digest == digest {
			return b.EntityType, true, true
		}
		if slices.Contains(b.digests(), digest) {
			entityType, needed = b.EntityType, true
		}
	}
	return entityType, false, needed
}

func (t *transition) collectModules(at int64) (Result, error) {
	if level := t.view.Level(); level < sharding.LevelModuleRetention {
		return Result{}, fmt.Errorf("%w: the collection of modules is of level %d, the cluster is at level %d", ErrLevel, sharding.LevelModuleRetention, level)
	}
	if at <= 0 {
		return Result{}, fmt.Errorf("%w: modules are collected at no time", ErrInvalid)
	}
	unused, old := t.view.stale(at)
	for _, m := range unused {
		m.UnusedSince = at
		t.keepModule(m)
	}
	if len(old) > 0 {
		t.forgetModules(old...)
	}
	return Result{Collected: old}, nil
}
