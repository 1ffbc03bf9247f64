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

// maxCollected limits the modules that one command changes.
const maxCollected = 64

// CollectModules returns the command that marks modules as unused and removes
// modules that have been unused for ModuleRetention. It requires
// sharding.VersionModuleRetention. at is the current time in Unix nanoseconds.
// A command changes a limited number of modules: repeat it while
// HasStaleModules reports true. The result names the removed modules.
func CollectModules(at int64) []byte { return encode(command{Op: opCollectModules, At: at}) }

// HasStaleModules reports whether CollectModules would change anything.
func (v *View) HasStaleModules(at int64) bool {
	unused, old := v.staleModules(at)
	return len(unused)+len(old) > 0
}

// staleModules returns unused modules that are not marked yet, and marked
// modules whose retention is over.
func (v *View) staleModules(at int64) (unused []Module, old []Digest) {
	needed, retention := v.neededModules(), v.ModuleRetention()
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

// moduleDigests returns the modules that a binding needs: the serving module,
// the module of a rollout, and modules that rollbacks may return to.
func (b *Activation) moduleDigests() []Digest {
	out := []Digest{b.Digest}
	if b.needsRollout() {
		out = append(out, b.Rollout.Digest)
	}
	for i := range b.History {
		out = append(out, b.History[i].Digest)
	}
	return out
}

// snapshotModules returns the modules whose snapshots the binding's modules
// load. Their manifests describe the state in these snapshots, so they are
// needed too.
func (b *Activation) snapshotModules() []Digest {
	out := slices.Concat(b.Snapshots, b.Truncated)
	if b.Rollout != nil {
		out = append(append(out, b.Rollout.Snapshots...), b.Rollout.Truncated...)
	}
	for i := range b.History {
		out = append(append(out, b.History[i].Snapshots...), b.History[i].Truncated...)
	}
	return out
}

// snapshotReader returns an entity type with a module that loads snapshots of
// the given module.
func (v *View) snapshotReader(digest Digest) (entityType string, ok bool) {
	if v.ClusterVersion() < sharding.VersionSnapshotStates {
		return "", false
	}
	for _, b := range v.Activations() {
		if slices.Contains(b.snapshotModules(), digest) {
			return b.EntityType, true
		}
	}
	return "", false
}

// neededModules returns the modules that an entity type needs, including
// shadows.
func (v *View) neededModules() map[Digest]bool {
	out := make(map[Digest]bool, len(v.activations))
	for _, b := range v.activations {
		for _, digest := range b.moduleDigests() {
			out[digest] = true
		}
		if v.ClusterVersion() >= sharding.VersionSnapshotStates {
			for _, digest := range b.snapshotModules() {
				out[digest] = true
			}
		}
	}
	for _, s := range v.settings {
		if shadow, ok := s.asShadow(); ok {
			out[shadow.Digest] = true
		}
	}
	return out
}

// neededBy returns an entity type that needs the module. serves is true if the
// module serves the type now, and false if a rollback of the type may return to
// it.
func (v *View) neededBy(digest Digest) (entityType string, serves, needed bool) {
	for _, b := range v.Activations() {
		if b.Digest == digest || b.needsRollout() && b.Rollout.Digest == digest {
			return b.EntityType, true, true
		}
		if slices.Contains(b.moduleDigests(), digest) {
			entityType, needed = b.EntityType, true
		}
	}
	return entityType, false, needed
}

func (t *transition) collectModules(at int64) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionModuleRetention {
		return Result{}, fmt.Errorf("%w: module garbage collection needs cluster version %d, the cluster is at %d", ErrClusterVersion, sharding.VersionModuleRetention, level)
	}
	if at <= 0 {
		return Result{}, fmt.Errorf("%w: the time of a module garbage collection must be positive", ErrInvalid)
	}
	unused, old := t.view.staleModules(at)
	for _, m := range unused {
		m.UnusedSince = at
		t.keepModule(m)
	}
	if len(old) > 0 {
		t.forgetModules(old...)
	}
	return Result{Collected: old}, nil
}

// Shadow settings have keys of the form entity.TYPE.shadow.
const (
	shadowBegins = "entity."
	shadowEnds   = ".shadow"
)

// Shadow is a module that processes a share of a type's commands in parallel to
// the serving module, without effect, so that the decisions can be compared.
type Shadow struct {
	EntityType string
	Digest     Digest
	Share      uint32 // in units of 1/sharding.Buckets
	Revision   uint64 // revision of the setting
}

// ParseShadow parses the value of a shadow setting: a module digest in hex and
// a percentage from 0.01 to 100.
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

// asShadow returns the shadow that the setting defines, if it is a shadow
// setting.
func (s Setting) asShadow() (out Shadow, ok bool) {
	entityType, begins := strings.CutPrefix(s.Key, shadowBegins)
	entityType, ends := strings.CutSuffix(entityType, shadowEnds)
	if !begins || !ends || strings.Contains(entityType, ".") {
		return out, false
	}
	digest, share, err := ParseShadow(string(s.Value))
	return Shadow{entityType, digest, share, s.Revision}, err == nil
}

// ShadowOf returns the shadow of an entity type.
func ShadowOf(v *View, entityType string) (s Shadow, ok bool) {
	set, ok := v.Setting(shadowBegins + entityType + shadowEnds)
	if !ok {
		return s, false
	}
	return set.asShadow()
}

// ShadowedBy returns the first entity type, by name, that has the module as its
// shadow.
func (v *View) ShadowedBy(digest Digest) (entityType string, ok bool) {
	for _, s := range v.settings {
		if by, is := s.asShadow(); is && by.Digest == digest && (!ok || by.EntityType < entityType) {
			entityType, ok = by.EntityType, true
		}
	}
	return entityType, ok
}

// resetShadowUnused clears the unused mark of a shadow module whose setting is
// removed or replaced, so that its retention starts now.
func resetShadowUnused(t *transition, s Setting) {
	shadow, ok := s.asShadow()
	if m, known := t.view.modules[shadow.Digest]; ok && known && m.UnusedSince != 0 {
		m.UnusedSince = 0
		t.keepModule(m)
	}
}
