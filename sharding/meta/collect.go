package meta

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding"
)

// maxCollected bounds the modules that one command changes.
const maxCollected = 64

// CollectModules makes the command that notes since when modules are not
// needed, and has those forgotten that were not for ModuleRetention, from
// sharding.VersionModuleRetention on. at is now, in unix nanoseconds. It changes
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
	if b.needsRollout() {
		out = append(out, b.Rollout.Digest)
	}
	for i := range b.History {
		out = append(out, b.History[i].Digest)
	}
	return out
}

// reads are the modules whose snapshots the binding's modules load: what the
// states in these are, their manifests say.
func (b *Binding) reads() []Digest {
	out := slices.Concat(b.Snapshots, b.Truncated)
	if b.Rollout != nil {
		out = append(append(out, b.Rollout.Snapshots...), b.Rollout.Truncated...)
	}
	for i := range b.History {
		out = append(append(out, b.History[i].Snapshots...), b.History[i].Truncated...)
	}
	return out
}

// readBy is an entity type of which a module loads snapshots of this one.
func (v *View) readBy(digest Digest) (entityType string, ok bool) {
	if v.ClusterVersion() < sharding.VersionSnapshotStates {
		return "", false
	}
	for _, b := range v.Bindings() {
		if slices.Contains(b.reads(), digest) {
			return b.EntityType, true
		}
	}
	return "", false
}

// needed are the modules that some entity type needs, or that decide a share of
// its commands too.
func (v *View) needed() map[Digest]bool {
	out := make(map[Digest]bool, len(v.bindings))
	for _, b := range v.bindings {
		for _, digest := range b.digests() {
			out[digest] = true
		}
		if v.ClusterVersion() >= sharding.VersionSnapshotStates {
			for _, digest := range b.reads() {
				out[digest] = true
			}
		}
	}
	for _, s := range v.settings {
		if shadow, ok := s.shadow(); ok {
			out[shadow.Digest] = true
		}
	}
	return out
}

// NeededBy returns an entity type that needs a module, and whether the module
// serves it or is one that rollbacks of it may come back to.
func (v *View) NeededBy(digest Digest) (entityType string, serves, needed bool) {
	for _, b := range v.Bindings() {
		if b.Digest == digest || b.needsRollout() && b.Rollout.Digest == digest {
			return b.EntityType, true, true
		}
		if slices.Contains(b.digests(), digest) {
			entityType, needed = b.EntityType, true
		}
	}
	return entityType, false, needed
}

func (t *transition) collectModules(at int64) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionModuleRetention {
		return Result{}, fmt.Errorf("%w: the collection of modules is of level %d, the cluster is at level %d", ErrClusterVersion, sharding.VersionModuleRetention, level)
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

// Settings by which another module decides a share of a type's commands too are
// entity.TYPE.shadow.
const (
	shadowBegins = "entity."
	shadowEnds   = ".shadow"
)

// Shadow is a module that decides a share of a type's commands beside the one
// that serves it.
type Shadow struct {
	EntityType string
	Digest     Digest
	Share      uint32 // of sharding.Buckets
	Revision   uint64 // of the setting that says so
}

// ParseShadow reads what such a setting says: a digest, in hex, and a
// percentage from 0.01 to 100.
func ParseShadow(text string) (digest Digest, share uint32, err error) {
	name, of, ok := strings.Cut(text, " ")
	percent, is := strings.CutSuffix(strings.TrimSpace(of), "%")
	if !ok || !is {
		return digest, 0, fmt.Errorf("%.80q is not DIGEST PERCENT%%, such as the 64 hex digits of a module and 10%%", text)
	}
	if digest.UnmarshalText([]byte(name)) != nil {
		return Digest{}, 0, fmt.Errorf("%.80q is not the digest of a module, 64 digits of lower-case hex", name)
	}
	n, err := strconv.ParseFloat(percent, 64)
	all := math.Round(n * sharding.Buckets / 100)
	if err != nil || !(all >= 1 && all <= sharding.Buckets) {
		return Digest{}, 0, fmt.Errorf("%.32q is not a percentage from 0.01 to 100", percent)
	}
	return digest, uint32(all), nil
}

// shadow is what a setting says, where it is one of those.
func (s Setting) shadow() (out Shadow, ok bool) {
	entityType, begins := strings.CutPrefix(s.Key, shadowBegins)
	entityType, ends := strings.CutSuffix(entityType, shadowEnds)
	if !begins || !ends || strings.Contains(entityType, ".") {
		return out, false
	}
	digest, share, err := ParseShadow(string(s.Value))
	return Shadow{entityType, digest, share, s.Revision}, err == nil
}

// ShadowOf is the module that decides a share of a type's commands too.
func ShadowOf(v *View, entityType string) (s Shadow, ok bool) {
	set, ok := v.Setting(shadowBegins + entityType + shadowEnds)
	if !ok {
		return s, false
	}
	return set.shadow()
}

// ShadowedBy is an entity type, the first by name, of which a setting has the
// module decide commands too.
func (v *View) ShadowedBy(digest Digest) (entityType string, ok bool) {
	for _, s := range v.settings {
		if by, is := s.shadow(); is && by.Digest == digest && (!ok || by.EntityType < entityType) {
			entityType, ok = by.EntityType, true
		}
	}
	return entityType, ok
}

// unshadowed has the module of a setting that goes, or is replaced, count as
// needed until now.
func unshadowed(t *transition, s Setting) {
	shadow, ok := s.shadow()
	if m, known := t.view.modules[shadow.Digest]; ok && known && m.UnusedSince != 0 {
		m.UnusedSince = 0
		t.keepModule(m)
	}
}
