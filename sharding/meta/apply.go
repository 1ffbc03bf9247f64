package meta

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/sharding"
)

// transition applies one command to a view, producing the next view. view is
// the transition's own copy, but its maps are shared with earlier views and
// must be replaced, never modified in place.
type transition struct {
	view   *View
	writes []KV
}

func (t *transition) apply(body []byte) (Result, error) {
	c, err := decode(body)
	if err != nil {
		return Result{}, err
	}
	if !t.view.created && c.Op != opCreateCluster {
		return Result{}, ErrNoCluster
	}
	switch {
	case c.Op == opCreateCluster && c.Cluster != nil && c.BootstrapNode != nil:
		return Result{}, t.createCluster(*c.Cluster, *c.BootstrapNode, c.Policy)
	case c.Op == opPutMember && c.Member != nil:
		return Result{}, t.putMember(*c.Member)
	case c.Op == opPlace && len(c.Place) > 0:
		return t.place(c.Place)
	case c.Op == opPutModule && c.Module != nil:
		return Result{}, t.putModule(*c.Module)
	case c.Op == opRemoveModule && c.Digest != nil:
		return Result{}, t.removeModule(*c.Digest)
	case c.Op == opCollectModules:
		return t.collectModules(c.At)
	case c.Op == opPutVerified && c.Verified != nil:
		return Result{}, putVerificationResult(t, c.EntityType, *c.Verified)
	case c.Op == opPutRollouts && c.Rollouts != nil:
		return putRollouts(t, c)
	case c.Op == opPauseTypeWrites:
		return pauseTypeWrites(t, c.EntityType, c.Revision)
	case c.Op == opResumeTypeWrites:
		return resumeTypeWrites(t, c.EntityType, c.Revision)
	case c.Op == opBind && c.Digest != nil:
		return t.bind(c)
	case c.Op == opRollback:
		return t.rollback(c)
	case c.Op == opPutSetting && c.Setting != nil:
		return t.putSetting(*c.Setting)
	case c.Op == opJoin && c.Member != nil:
		return t.join(*c.Member)
	case c.Op == opSetStatus && c.Status != nil:
		return Result{}, t.setStatus(*c.Status)
	case c.Op == opSetDraining && c.Status != nil:
		return Result{}, t.setDraining(*c.Status)
	case c.Op == opRemoveMember && c.Status != nil:
		return Result{}, t.removeMember(c.Status.Node)
	case c.Op == opChange && c.Change != nil:
		return t.change(*c.Change)
	case c.Op == opPutPolicy && c.Policy != nil:
		return Result{}, t.changePolicy(c.Was, *c.Policy)
	case c.Op == opRaiseLevel && c.Raise != nil:
		return Result{}, t.raiseClusterVersion(*c.Raise)
	case c.Op == opRecoverShard && c.Recover != nil:
		return t.recoverShard(*c.Recover)
	case c.Op == opPutRole || c.Op == opDeleteRole || c.Op == opPutRoleBinding || c.Op == opDeleteRoleBinding:
		return t.applyRole(c)
	case c.Op == opPutTypeOwner && c.Owner != nil:
		return Result{}, t.putTypeOwner(c.EntityType, *c.Owner)
	case c.Op == opPutToken || c.Op == opDeleteToken:
		return t.applyToken(c)
	}
	return Result{}, fmt.Errorf("%w: operation %.40q is incomplete", ErrInvalid, c.Op)
}

func (t *transition) store(key string, value any) {
	t.writes = append(t.writes, KV{Key: []byte(key), Value: wrap(value)})
}

func (t *transition) storeCounters() {
	t.store(keyCounters, t.view.counters)
}

func (t *transition) createCluster(c Cluster, founder Member, policy *Policy) error {
	if t.view.created {
		if t.view.cluster == c {
			return nil
		}
		return fmt.Errorf("%w: %s", ErrClusterExists, t.view.cluster.ID)
	}
	if err := checkCluster(c); err != nil {
		return err
	}
	if err := checkMember(founder); err != nil {
		return err
	}
	if founder.Speaks.WithDefault().Max > sharding.Version1 {
		if err := t.setClusterVersion(founder.Speaks.Max); err != nil {
			return err
		}
	}
	if err := t.view.checkSupports(founder); err != nil {
		return err
	}
	t.view.cluster, t.view.created = c, true
	t.store(keyCluster, c)
	put(&t.view.members, founder.Node, founder)
	t.store(prefixMember+string(founder.Node), founder)
	t.view.placements = maps.Clone(t.view.placements)
	t.allocate(PlaceOn{Shard: sharding.MetaShard, Nodes: []sharding.NodeID{founder.Node}})
	t.storeCounters()
	if policy == nil {
		return nil
	}
	if t.view.ClusterVersion() < sharding.VersionPolicy {
		return fmt.Errorf("%w: a cluster at version %d cannot be created with a policy", ErrClusterVersion, t.view.ClusterVersion())
	}
	return t.putPolicy(*policy)
}

// changePolicy rejects a change that was based on an outdated policy: of two
// concurrent changes, the later change would otherwise undo the earlier change.
func (t *transition) changePolicy(was *Policy, p Policy) error {
	if was != nil {
		if t.view.ClusterVersion() < sharding.VersionPolicy {
			return fmt.Errorf("%w: at cluster version %d all fields of the policy must be set together", ErrClusterVersion, t.view.ClusterVersion())
		}
		var now Policy
		if t.view.policy != nil {
			now = *t.view.policy
		}
		if now != *was && now != p {
			return fmt.Errorf("%w: the policy was changed concurrently", ErrConflict)
		}
	}
	return t.putPolicy(p)
}

func (t *transition) putPolicy(p Policy) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.DeadAfter != 0 && t.view.ClusterVersion() < sharding.VersionPolicy {
		return fmt.Errorf("%w: at cluster version %d the policy cannot set deadAfter", ErrClusterVersion, t.view.ClusterVersion())
	}
	if t.view.policy == nil || *t.view.policy != p {
		t.view.policy = &p
		t.store(keyPolicy, p)
	}
	return nil
}

func (t *transition) putSetting(s settingSet) (Result, error) {
	if err := checkName("setting", s.Key, MaxSettingKeyBytes); err != nil {
		return Result{}, err
	}
	before, known := t.view.settings[s.Key]
	key := []byte(prefixSetting + s.Key)
	if s.Delete && !known {
		return Result{}, nil
	}
	if len(s.Value) > MaxSettingValueBytes {
		return Result{}, fmt.Errorf("%w: the setting has %d bytes, at most %d are allowed", ErrInvalid, len(s.Value), MaxSettingValueBytes)
	}
	if !s.Delete && !known && len(t.view.settings) >= maxSettings {
		return Result{}, fmt.Errorf("%w: the cluster already has %d settings", ErrInvalid, maxSettings)
	}
	t.view.counters.SettingRevision++
	revision := t.view.counters.SettingRevision
	resetShadowUnused(t, before)
	if s.Delete {
		next := maps.Clone(t.view.settings)
		delete(next, s.Key)
		t.view.settings = next
		t.writes = append(t.writes, KV{Key: key})
	} else {
		set := Setting{Key: s.Key, Value: append([]byte{}, s.Value...), Revision: revision}
		put(&t.view.settings, s.Key, set)
		t.writes = append(t.writes, KV{Key: key, Value: wrapSetting(set)})
		resetShadowUnused(t, set)
	}
	t.storeCounters()
	return Result{Revision: revision}, nil
}
