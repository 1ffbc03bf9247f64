package meta

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/sharding"
)

// CheckModuleQuota checks the quotas of the cluster and of the uploader for one
// more module. Of m it reads only Digest, Size and Uploader. A module that the
// view already has is within the quotas, because modules from before quotas
// existed stay.
func (v *View) CheckModuleQuota(m Module) error {
	if _, known := v.modules[m.Digest]; known {
		return nil
	}
	level := v.ClusterVersion()
	if level < sharding.VersionRemoveModule {
		if m.Uploader != "" {
			return fmt.Errorf("%w: module uploaders need cluster version %d, the cluster is at %d", ErrClusterVersion, sharding.VersionRemoveModule, level)
		}
		if len(v.modules) >= MaxModules {
			return fmt.Errorf("%w: the cluster already has %d modules", ErrInvalid, MaxModules)
		}
		return nil
	}
	if err := checkText("uploader", m.Uploader, maxUploaderBytes); err != nil {
		return err
	}
	// Lowering a quota does not remove modules, so use may exceed it.
	switch most, use := v.ModuleQuotas(), v.ModuleUse(m.Uploader); {
	case use.Modules >= most.Modules:
		return fmt.Errorf("%w: the cluster has %d modules, at most %d are allowed; %s", ErrQuota, use.Modules, most.Modules, SettingModuleCount)
	case m.Size > most.Bytes-use.Bytes:
		return fmt.Errorf("%w: the cluster's modules have %d bytes and this one has %d, at most %d are allowed; %s", ErrQuota, use.Bytes, m.Size, most.Bytes, SettingModuleBytes)
	case use.OfOne >= most.OfOne:
		return fmt.Errorf("%w: the uploader has %d modules, at most %d are allowed; %s", ErrQuota, use.OfOne, most.OfOne, SettingModuleUploader)
	case level >= sharding.VersionUploaderBytes && m.Uploader != "" && m.Size > most.BytesOfOne-use.BytesOfOne:
		return fmt.Errorf("%w: the uploader's modules have %d bytes and this one has %d, at most %d are allowed; %s", ErrQuota, use.BytesOfOne, m.Size, most.BytesOfOne, SettingModuleUploaderBytes)
	}
	return nil
}

func (t *transition) removeModule(digest Digest) error {
	if level := t.view.ClusterVersion(); level < sharding.VersionRemoveModule {
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionRemoveModule.NeededBy("removing modules needs", level))
	}
	if _, known := t.view.modules[digest]; !known {
		return nil
	}
	switch entityType, serves, needed := t.view.neededBy(digest); {
	case serves:
		return fmt.Errorf("%w: the module serves entity type %s", ErrConflict, entityType)
	case needed:
		return fmt.Errorf("%w: a rollback of entity type %s would return to the module", ErrConflict, entityType)
	}
	if entityType, ok := t.view.snapshotReader(digest); ok {
		return fmt.Errorf("%w: the active module of entity type %s loads snapshots that this module wrote", ErrConflict, entityType)
	}
	if entityType, ok := t.view.ShadowedBy(digest); ok {
		return fmt.Errorf("%w: the module shadows entity type %s: end it with 'hostd module activate %s %s --shadow off'", ErrConflict, entityType, entityType, digest)
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
