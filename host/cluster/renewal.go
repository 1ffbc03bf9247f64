package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// ErrDamagedData means that the node's log or store is damaged, and the cluster
// has all of its data and has declared the node dead. Stop the node, pass its
// directory to Rejoin and start it again.
var ErrDamagedData = errors.New("the node's data is damaged: the node moves it aside and copies its shards from other nodes")

const (
	// renewEvery is how often a node checks for damage and, if there is some,
	// asks whether it may discard its data.
	renewEvery = 2 * time.Second
	// renewRest is the minimum time between two renewals. If a disk causes
	// damage more often, an operator should replace it.
	renewRest = time.Hour
	// renewPatience is how long a starting node with damaged data asks
	// before it fails.
	renewPatience = time.Minute
)

// Renewal discards damaged data if the other nodes permit it. A node that is
// alone in its cluster cannot get the data from anybody, so it keeps it.
type Renewal struct {
	Identity    *datadir.Record
	Entrance    entrance
	AddressBook *AddressBook
	Lifecycle   lifecycle
	Logger      *slog.Logger
}

// Run waits until the node's data is found to be damaged, and then asks
// the other nodes until this node may discard its data or ctx ends.
func (r *Renewal) Run(ctx context.Context, machine *eventlog.Machine) {
	every := time.NewTicker(renewEvery)
	defer every.Stop()
	said := ""
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		r.saveOthers()
		if damage := damageOf(machine.StoppedShards()); damage != nil {
			err := r.renew(ctx, damage)
			if err == nil {
				r.Lifecycle.End(ErrDamagedData)
				return
			}
			if why := err.Error(); why != said && ctx.Err() == nil {
				said = why
				r.Logger.Error("the node's data is damaged; keeping it for now", "damage", damage, "reason", why)
			}
		}
	}
}

// damageOf returns the damage that concerns all data of the node, or nil: a
// damaged table of the store, or a log of the metadata shard without entries
// that the node had acknowledged, because the directory is then an outdated copy
// and the node does not learn that the coordinator replaces its replicas. Other
// replicas without acknowledged entries, and those whose state differs from that
// of other replicas, are ignored, because the coordinator replaces them.
func damageOf(shards map[sharding.ShardID]*eventlog.StoppedError) error {
	for shard, stopped := range shards {
		var damage *store.DamageError
		if eventlog.ReasonOf(stopped) == sharding.StopDamaged && errors.As(stopped, &damage) {
			return damage
		}
		if shard == sharding.MetaShard && errors.Is(stopped, raftgroup.ErrEntriesLost) {
			return stopped
		}
	}
	return nil
}

// renew asks once whether the node may discard its data. It records nothing, so
// a node that ends before it has set its data aside asks again.
func (r *Renewal) renew(ctx context.Context, damage error) error {
	id := r.Identity.Now()
	if !id.Several {
		return errors.New("the node is the only one of its cluster")
	}
	if since := time.Since(time.UnixMilli(id.Renewed)); since < renewRest {
		return fmt.Errorf("the node already rebuilt its data %v ago: check its disk, and run 'hostd recover --rejoin'", since.Round(time.Second))
	}
	if err := r.Entrance.Entry().Renew(ctx, r.AddressBook.Addresses()); err != nil {
		return err
	}
	r.Logger.Error("moving the node's damaged data aside and rejoining with an empty data directory", "damage", damage)
	return nil
}

// saveOthers saves the addresses of the other nodes in the identity file, so
// that the node finds them if it cannot read its own data when it starts. A
// node that bootstrapped its cluster has no seeds to ask.
func (r *Renewal) saveOthers() {
	known := r.AddressBook.Addresses()
	err := r.Identity.Save(func(id *datadir.Identity) bool {
		if len(known) == 0 || slices.Equal(known, id.Known) {
			return false
		}
		id.Known = known
		return true
	})
	if err != nil {
		r.Logger.Warn("cannot store the addresses of other nodes", "error", err)
	}
}

// AtStart handles the error of a node that failed to start. If the error is
// damage and the other nodes permit this node to discard its data, AtStart
// returns ErrDamagedData; otherwise it returns failed.
func (r *Renewal) AtStart(ctx context.Context, failed error) error {
	var log *wal.DamageError
	if !errors.Is(failed, journal.ErrDamaged) && !errors.As(failed, &log) {
		return failed
	}
	if id := r.Identity.Now(); !id.Member() || !id.Several {
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, renewPatience)
	defer cancel()
	for {
		err := r.renew(ctx, failed)
		if err == nil {
			return errors.Join(ErrDamagedData, failed)
		}
		r.Logger.Error("the node's data is damaged; asking the cluster for permission to rebuild it", "damage", failed, "error", err)
		select {
		case <-time.After(renewEvery):
		case <-ctx.Done():
			return errors.Join(failed, err)
		}
	}
}
