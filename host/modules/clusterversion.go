package modules

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// checkManifest rejects a module if its manifest has invalid schemas or needs a
// higher cluster version.
func (s *Service) checkManifest(m *manifest.Manifest) error {
	if err := guest.CheckSchemas(m); errors.Is(err, manifest.ErrInvalid) {
		return &request.InvalidModuleError{Reason: "module refused: " + err.Error()}
	} else if err != nil {
		return err
	}
	return s.checkClusterVersion(m)
}

// checkClusterVersion rejects a module if its manifest needs a higher cluster
// version. Nodes of an earlier release would ignore the newer members of the
// manifest and serve the module wrongly.
func (s *Service) checkClusterVersion(m *manifest.Manifest) error {
	return checkVersion(s.metadata.View().ClusterVersion(), m)
}

func checkVersion(version sharding.ClusterVersion, m *manifest.Manifest) error {
	for i := range m.EntityTypes {
		what, of := requiredVersion(&m.EntityTypes[i])
		if version < of {
			return &status.RefusedError{Reason: of.NeededBy(fmt.Sprintf("entity type %s %s, which needs", m.EntityTypes[i].Name, what), version)}
		}
	}
	switch {
	case version >= sharding.VersionSchemas:
	case m.HasSchemas():
		return &status.RefusedError{Reason: sharding.VersionSchemas.NeededBy("the manifest has schemas, which need", version)}
	case m.Size() > earlierBytes:
		return &status.RefusedError{Reason: sharding.VersionSchemas.NeededBy(fmt.Sprintf("the manifest has %d bytes, and more than %d need", m.Size(), earlierBytes), version)}
	}
	return nil
}

// earlierBytes is the maximum size of a manifest that nodes of an earlier
// release read.
const earlierBytes = 64 << 10

// requiredVersion returns the highest cluster version that a type's manifest
// requires, and a text that says which feature requires it.
func requiredVersion(t *manifest.EntityType) (what string, of sharding.ClusterVersion) {
	if t.Kind == manifest.Workflow {
		return "is a workflow", sharding.VersionWorkflows
	}
	if t.ReadsStates != nil && t.Kind == manifest.EventSourced {
		return "lists state versions of snapshots", sharding.VersionSnapshotStates
	}
	if t.AlwaysOn && !t.EarlierAlwaysOn {
		return "has the member alwaysOn", sharding.VersionAlwaysOn
	}
	for i := range t.Commands {
		if t.Commands[i].Internal {
			return "marks commands internal", sharding.VersionInternal
		}
	}
	if t.Sends != nil || t.AcceptsFrom != nil {
		return "lists the types that it sends to or accepts messages from", sharding.VersionSends
	}
	if t.RecordPrincipal {
		return "records the principals of commands", sharding.VersionRecordPrincipal
	}
	if t.ReadsStates != nil || t.Kind == manifest.DurableState && t.StateVersion > 1 {
		return "declares a state version", sharding.VersionStateVersions
	}
	return "", sharding.FirstVersion()
}
