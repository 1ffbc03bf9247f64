package meta

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/sharding"
)

// roomForModule holds the modules of the cluster, and those of one uploader, to
// their bounds. What a cluster had before it knew of them stays.
func (t *transition) roomForModule(m Module) error {
	level := t.view.ClusterVersion()
	if level < sharding.VersionRemoveModule {
		if m.Uploader != "" {
			return fmt.Errorf("%w: uploaders of modules are of level %d, the cluster is at level %d", ErrClusterVersion, sharding.VersionRemoveModule, level)
		}
		if len(t.view.modules) >= MaxModules {
			return fmt.Errorf("%w: the cluster has %d modules already", ErrInvalid, MaxModules)
		}
		return nil
	}
	if err := checkText("uploader", m.Uploader, maxUploaderBytes); err != nil {
		return err
	}
	// Lowering what is allowed takes nothing away.
	switch most, use := t.view.ModuleQuotas(), t.view.ModuleUse(m.Uploader); {
	case use.Modules >= most.Modules:
		return fmt.Errorf("%w: the cluster has %d modules, at most %d are allowed (%s)", ErrQuota, use.Modules, most.Modules, SettingModuleCount)
	case m.Size > most.Bytes-use.Bytes:
		return fmt.Errorf("%w: the modules of the cluster have %d bytes, this one has %d, at most %d are allowed (%s)", ErrQuota, use.Bytes, m.Size, most.Bytes, SettingModuleBytes)
	case use.OfOne >= most.OfOne:
		return fmt.Errorf("%w: %d modules of the cluster are of the same uploader, at most %d are allowed (%s)", ErrQuota, use.OfOne, most.OfOne, SettingModuleUploader)
	case level >= sharding.VersionUploaderBytes && m.Uploader != "" && m.Size > most.BytesOfOne-use.BytesOfOne:
		return fmt.Errorf("%w: the modules of the same uploader have %d bytes, this one has %d, at most %d are allowed (%s)", ErrQuota, use.BytesOfOne, m.Size, most.BytesOfOne, SettingModuleUploaderBytes)
	}
	return nil
}

func (t *transition) removeModule(digest Digest) error {
	if level := t.view.ClusterVersion(); level < sharding.VersionRemoveModule {
		return fmt.Errorf("%w: the removal of modules is of level %d, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionRemoveModule, level)
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
	if entityType, ok := t.view.readBy(digest); ok {
		return fmt.Errorf("%w: a module of entity type %s loads snapshots of the module", ErrConflict, entityType)
	}
	if entityType, ok := t.view.ShadowedBy(digest); ok {
		return fmt.Errorf("%w: the module decides commands of entity type %s too: hostd module activate %s %s --shadow off", ErrConflict, entityType, entityType, digest)
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
