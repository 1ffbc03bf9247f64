package meta

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/sharding"
)

// roomForModule holds the modules of the cluster, and those of one uploader, to
// their bounds. What a cluster had before it knew of them stays.
func (t *transition) roomForModule(m Module) error {
	if level := t.view.Level(); level < sharding.LevelRemoveModule {
		if m.Uploader != "" {
			return fmt.Errorf("%w: uploaders of modules are of level %d, the cluster is at level %d", ErrLevel, sharding.LevelRemoveModule, level)
		}
		return nil
	}
	if err := checkText("uploader", m.Uploader, maxUploaderBytes); err != nil {
		return err
	}
	bytes, own := m.Size, 0
	for _, other := range t.view.modules {
		bytes += other.Size
		if other.Uploader == m.Uploader {
			own++
		}
	}
	switch {
	case bytes > MaxModuleBytes:
		return fmt.Errorf("%w: the modules of the cluster would have %d bytes, at most %d are allowed", ErrQuota, bytes, MaxModuleBytes)
	case m.Uploader != "" && own >= MaxUploaderModules:
		return fmt.Errorf("%w: %d modules of the cluster are of the same uploader, at most %d are allowed", ErrQuota, own, MaxUploaderModules)
	}
	return nil
}

func (t *transition) removeModule(digest Digest) error {
	if level := t.view.Level(); level < sharding.LevelRemoveModule {
		return fmt.Errorf("%w: the removal of modules is of level %d, the cluster is at level %d: hostd cluster raise-level", ErrLevel, sharding.LevelRemoveModule, level)
	}
	if _, known := t.view.modules[digest]; !known {
		return nil
	}
	switch entityType, serves, needed := t.view.NeededBy(digest); {
	case serves:
		return fmt.Errorf("%w: the module serves entity type %s", ErrConflict, entityType)
	case needed:
		return fmt.Errorf("%w: a rollback of entity type %s may come back to the module", ErrConflict, entityType)
	}
	t.forgetModules(digest)
	return nil
}

func (t *transition) forgetModules(digests ...Digest) {
	next := maps.Clone(t.view.modules)
	for _, digest := range digests {
		delete(next, digest)
		t.writes = append(t.writes, KV{Key: []byte(prefixModule + digest.String())})
	}
	t.view.modules = next
}
