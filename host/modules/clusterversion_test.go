package modules

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// TestInternalCommandsNeedClusterVersion: a module with internal commands is
// rejected below their cluster version, because a node of the previous
// release could serve the module, and would accept internal commands from
// clients.
func TestInternalCommandsNeedClusterVersion(t *testing.T) {
	of := func(commands string) *manifest.Manifest {
		m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"first","kind":"event-sourced","encoding":"json"},` +
			`{"name":"saga","kind":"event-sourced","encoding":"json","commands":[{"name":"start"},` + commands + `]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	marked, open := of(`{"name":"step","internal":true}`), of(`{"name":"step","internal":false}`)
	var refused *status.RefusedError
	if err := checkVersion(sharding.VersionInternal-1, marked); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "saga marks commands internal") {
		t.Errorf("below the level: %v", err)
	}
	for name, err := range map[string]error{"at the level": checkVersion(sharding.VersionInternal, marked), "without a mark": checkVersion(sharding.Version1, open)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSendsNeedClusterVersion: a module that lists the types it sends to is
// rejected below the cluster version of such lists, because a node of the
// previous release could serve the module, and would let it send to any type.
func TestSendsNeedClusterVersion(t *testing.T) {
	for _, member := range []string{`"sends":["b"]`, `"sends":[]`, `"acceptsFrom":["b"]`, `"acceptsFrom":[]`} {
		m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"a","kind":"event-sourced","encoding":"json",` + member + `}]}`))
		if err != nil {
			t.Fatal(err)
		}
		var refused *status.RefusedError
		if err := checkVersion(sharding.VersionSends-1, m); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "a lists the types that it sends to or accepts messages from") {
			t.Errorf("%s below the level: %v", member, err)
		}
		if err := checkVersion(sharding.VersionSends, m); err != nil {
			t.Errorf("%s at the level: %v", member, err)
		}
	}
}

// TestSchemasNeedClusterVersion: a module with schemas is rejected below
// their cluster version, because a node of the previous release would serve
// the module without validation, or could not read a manifest of that size.
func TestSchemasNeedClusterVersion(t *testing.T) {
	of := func(members, more string) *manifest.Manifest {
		m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"event-sourced","encoding":"json"` + members + `}]` + more + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	long := of("", `,"padding":"`+strings.Repeat("x", earlierBytes)+`"`)
	for name, m := range map[string]*manifest.Manifest{
		"has schemas": of(`,"queries":[{"name":"q","reply":true}]`, ""), "the manifest has schemas": of("", `,"$defs":{"a":true}`), "more than 65536 need cluster version": long,
	} {
		var refused *status.RefusedError
		if err := checkVersion(sharding.VersionSchemas-1, m); !errors.As(err, &refused) || !strings.Contains(refused.Reason, name) {
			t.Errorf("%s, below the level: %v", name, err)
		}
		if err := checkVersion(sharding.VersionSchemas, m); err != nil {
			t.Errorf("%s, at the level: %v", name, err)
		}
	}
}

// TestRecordedPrincipalsNeedClusterVersion: a module that records principals
// is rejected below the cluster version that can store them, because a node
// of the previous release could serve the module, and would not record
// principals.
func TestRecordedPrincipalsNeedClusterVersion(t *testing.T) {
	m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"a","kind":"event-sourced","encoding":"json","recordPrincipal":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var refused *status.RefusedError
	if err := checkVersion(sharding.VersionRecordPrincipal-1, m); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "a records the principals of commands") {
		t.Errorf("below the level: %v", err)
	}
	if err := checkVersion(sharding.VersionRecordPrincipal, m); err != nil {
		t.Errorf("at the level: %v", err)
	}
	if text, err := json.Marshal(m); err != nil || !strings.Contains(string(text), `"recordPrincipal":true`) {
		t.Errorf("it is written as %s, %v", text, err)
	}
}

// TestStateVersionsNeedClusterVersion: a module with state versions is
// rejected below their cluster version, because a node of the previous
// release could serve the module, and would give it states of any version as
// if they were its own.
func TestStateVersionsNeedClusterVersion(t *testing.T) {
	of := func(members string) *manifest.Manifest {
		m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"a","encoding":"json",` + members + `}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, member := range []string{`"kind":"durable-state","stateVersion":2`, `"kind":"durable-state","readsStates":[{"version":2}]`} {
		var refused *status.RefusedError
		if err := checkVersion(sharding.VersionStateVersions-1, of(member)); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "a declares a state version") {
			t.Errorf("%s below the level: %v", member, err)
		}
		if err := checkVersion(sharding.VersionStateVersions, of(member)); err != nil {
			t.Errorf("%s at the level: %v", member, err)
		}
	}
	for _, member := range []string{`"kind":"durable-state","stateVersion":1`, `"kind":"event-sourced","stateVersion":2`} {
		if err := checkVersion(sharding.Version1, of(member)); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
}

// TestHighestRequiredClusterVersionCounts checks that a type that uses several
// newer members of the manifest needs the highest of their cluster versions.
func TestHighestRequiredClusterVersionCounts(t *testing.T) {
	m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"saga","kind":"event-sourced","encoding":"json","recordPrincipal":true,` +
		`"stateVersion":2,"readsStates":[{"version":1}],"sends":["account"],"commands":[{"name":"settle","internal":true}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var refused *status.RefusedError
	if err := checkVersion(sharding.VersionSnapshotStates-1, m); !errors.As(err, &refused) {
		t.Errorf("accepted below version %d: %v", sharding.VersionSnapshotStates, err)
	}
	if err := checkVersion(sharding.VersionSnapshotStates, m); err != nil {
		t.Error(err)
	}
}

// TestAlwaysOnNeedsClusterVersion: nodes of an earlier release ignore the
// member alwaysOn, so only its earlier name is accepted below the cluster
// version of alwaysOn.
func TestAlwaysOnNeedsClusterVersion(t *testing.T) {
	for member, want := range map[string]sharding.ClusterVersion{
		"alwaysOn": sharding.VersionAlwaysOn, "rememberEntities": sharding.FirstVersion(),
	} {
		m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"clock","kind":"event-sourced","encoding":"json","` + member + `":true}]}`))
		if err != nil {
			t.Fatal(err)
		}
		for version := sharding.FirstVersion(); version <= sharding.MaxVersion; version++ {
			var refused *status.RefusedError
			if err := checkVersion(version, m); errors.As(err, &refused) != (version < want) {
				t.Errorf("%s at cluster version %d: %v", member, version, err)
			}
		}
	}
}
