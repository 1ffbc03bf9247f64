package meta

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding"
)

// maxCollected bounds the modules that one command changes.
const maxCollected = 64

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
	if b.Rollout != nil {
		out = append(out, b.Rollout.Digest)
	}
	for i := range b.History {
		out = append(out, b.History[i].Digest)
	}
	return out
}

// needed are the modules that some entity type needs, or that decide a share of
// its commands too.
func (v *View) needed() map[Digest]bool {
	out := make(map[Digest]bool, len(v.bindings))
	for _, b := range v.bindings {
		for _, digest := range b.digests() {
			out[digest] = true
		}
	}
	for _, s := range v.settings {
		if _, digest, ok := shadowOf(s); ok {
			out[digest] = true
		}
	}
	return out
}

// NeededBy returns an entity type that needs a module, and whether the module
// serves it or is one that rollbacks of it may come back to.
func (v *View) NeededBy(digest Digest) (entityType string, serves, needed bool) {
	for _, b := range v.Bindings() {
		if b.Digest == digest || b.Rollout != nil && b.Rollout.Digest == digest {
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

// Settings by which another module decides a share of a type's commands too:
// entity.TYPE.shadow, whose value begins with the module's digest.
const (
	shadowBegins = "entity."
	shadowEnds   = ".shadow"
)

// shadowOf is the entity type and the module of a setting that names one which
// decides too.
func shadowOf(s Setting) (entityType string, digest Digest, ok bool) {
	entityType, ok = strings.CutPrefix(s.Key, shadowBegins)
	if ok {
		entityType, ok = strings.CutSuffix(entityType, shadowEnds)
	}
	if !ok || strings.Contains(entityType, ".") {
		return "", digest, false
	}
	text, _, ok := strings.Cut(string(s.Value), " ")
	return entityType, digest, ok && digest.UnmarshalText([]byte(text)) == nil
}

// ShadowedBy is an entity type, the first by name, of which a setting has the
// module decide commands too.
func (v *View) ShadowedBy(digest Digest) (entityType string, ok bool) {
	for _, s := range v.settings {
		if of, by, is := shadowOf(s); is && by == digest && (!ok || of < entityType) {
			entityType, ok = of, true
		}
	}
	return entityType, ok
}

// unshadowed has the module of a setting that goes, or is replaced, count as
// needed until now.
func unshadowed(t *transition, s Setting) {
	_, digest, ok := shadowOf(s)
	if m, known := t.view.modules[digest]; ok && known && m.UnusedSince != 0 {
		m.UnusedSince = 0
		t.keepModule(m)
	}
}
