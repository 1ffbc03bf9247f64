// Package diff compares the manifests of two modules and reports which changes
// break existing data or programs: stored events, or callers and readers that
// were written for the earlier module. It is pure.
package diff

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/abi/manifest"
)

// Change is one difference between two manifests.
type Change struct {
	EntityType string `json:"entityType"`
	Where      string `json:"where"` // such as "event placed.items"; empty for the type itself
	What       string `json:"what"`
	// Breaking means that stored data, or programs for the earlier module, may
	// fail.
	Breaking bool `json:"breaking"`
}

// maxChanges limits the reported changes.
const maxChanges = 1000

// Of lists the changes from an older manifest to a newer manifest, by type, in
// the order of the types in the older manifest.
func Of(old, now *manifest.Manifest) []Change {
	d := &differ{old: defs{old.Defs}, now: defs{now.Defs}}
	for i := range old.EntityTypes {
		was := &old.EntityTypes[i]
		d.entityType, d.seen = was.Name, map[pair]bool{}
		is, _, ok := now.Type(was.Name)
		if !ok {
			d.add("", "the module no longer serves the type", true)
			continue
		}
		d.types(was, is)
	}
	for i := range now.EntityTypes {
		if name := now.EntityTypes[i].Name; !servesType(old, name) {
			d.entityType = name
			d.add("", "added the type", false)
		}
	}
	return d.changes
}

func servesType(m *manifest.Manifest, name string) bool {
	_, _, ok := m.Type(name)
	return ok
}

// differ compares two manifests.
type differ struct {
	old, now   defs
	entityType string
	seen       map[pair]bool // pairs of references compared so far
	changes    []Change
}

func (d *differ) add(where, what string, breaking bool) {
	if len(d.changes) < maxChanges {
		d.changes = append(d.changes, Change{d.entityType, where, what, breaking})
	}
}

func (d *differ) types(was, is *manifest.EntityType) {
	if was.Kind != is.Kind {
		d.add("", fmt.Sprintf("its kind changed from %s to %s", was.Kind, is.Kind), true)
	}
	if was.Encoding != is.Encoding {
		d.add("", fmt.Sprintf("its encoding changed from %s to %s", was.Encoding, is.Encoding), true)
	}
	if was.ShardKey != is.ShardKey {
		d.add("", "its shard key changed", true)
	}
	if was.Singleton != is.Singleton {
		d.add("", fmt.Sprintf("singleton changed from %v to %v", was.Singleton, is.Singleton), true)
	}
	d.compareNames("command", was.Commands, is.Commands)
	d.compareNames("query", was.Queries, is.Queries)
	d.events(was.Events, is.Events)
	d.schema("state", was.State, is.State, stored)
	d.states(was, is)
}

// states compares the versions of states. A durable-state type that cannot read
// earlier versions fails on stored states.
func (d *differ) states(was, is *manifest.EntityType) {
	if was.StateVersion != is.StateVersion {
		d.add("state", fmt.Sprintf("its version changed from %d to %d", was.StateVersion, is.StateVersion), false)
	}
	if was.Kind != manifest.DurableState || is.Kind != manifest.DurableState {
		return
	}
	then, now := was.States(), is.States()
	versions := []int{then.Version()}
	for i := range was.ReadsStates {
		versions = append(versions, was.ReadsStates[i].Version)
	}
	for _, version := range versions {
		if now.Check(version) != nil {
			d.add("state", fmt.Sprintf("no longer reads version %d", version), true)
		}
	}
}

// compareNames compares commands or queries. A manifest without a list accepts any
// name.
func (d *differ) compareNames(kind string, was, is []manifest.Named) {
	switch {
	case was == nil && is == nil:
		return
	case was == nil:
		d.add("", fmt.Sprintf("now lists its names of kind %s and rejects others", kind), true)
		return
	case is == nil:
		d.add("", fmt.Sprintf("no longer lists its names of kind %s", kind), false)
		return
	}
	for i := range was {
		where := kind + " " + was[i].Name
		at := slices.IndexFunc(is, func(n manifest.Named) bool { return n.Name == was[i].Name })
		if at < 0 {
			d.add(where, "removed", true)
			continue
		}
		if was[i].Internal != is[at].Internal {
			d.add(where, fmt.Sprintf("internal changed from %v to %v", was[i].Internal, is[at].Internal), is[at].Internal)
		}
		d.schema(where, was[i].Schema, is[at].Schema, taken)
		d.schema(where+" reply", was[i].Reply, is[at].Reply, given)
	}
	for i := range is {
		if !slices.ContainsFunc(was, func(n manifest.Named) bool { return n.Name == is[i].Name }) {
			d.add(kind+" "+is[i].Name, "added", false)
		}
	}
}

func (d *differ) events(was, is []manifest.EventType) {
	if is == nil {
		if was != nil {
			d.add("", "no longer lists its event types", false)
		}
		return
	}
	for i := range was {
		where := "event " + was[i].Type
		at := slices.IndexFunc(is, func(e manifest.EventType) bool { return e.Type == was[i].Type })
		if at < 0 {
			d.add(where, "removed", true)
			continue
		}
		if to := is[at].UpcastTo; to != was[i].UpcastTo && to != "" {
			d.add(where, "is now upcast to "+to+" and no longer emitted", false)
		}
		d.schema(where, was[i].Schema, is[at].Schema, stored)
	}
	for i := range is {
		if !slices.ContainsFunc(was, func(e manifest.EventType) bool { return e.Type == is[i].Type }) {
			d.add("event "+is[i].Type, "added", false)
		}
	}
}
