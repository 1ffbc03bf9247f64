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
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// ErrDamagedData: the node's log or store is damaged, and the cluster has all
// of it and has taken the node for dead. The node is to be stopped, its
// directory given to Rejoin, and the node started again.
var ErrDamagedData = errors.New("the node's data is damaged: it puts it aside, and the others give it what it had")

const (
	// renewEvery is how often a node with damaged data looks whether it has some,
	// and asks whether it may give it up.
	renewEvery = 2 * time.Second
	// renewRest is the time between two renewals: a disk that damages more than
	// that is to be replaced by an operator.
	renewRest = time.Hour
	// renewPatience is how long a start with damaged data asks before it fails.
	renewPatience = time.Minute
)

// Renewal gives up damaged data where the others let the node. A node alone has
// nobody to get it from.
type Renewal struct {
	Identity    *datadir.Record
	Entry       func() Entry
	AddressBook *AddressBook
	End         func(error) // says why the node is to be stopped
	Logger      *slog.Logger
}

// Run waits until a table of the store is found to be damaged, and then asks
// the others until the node may give its data up, or ctx ends.
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
				r.End(ErrDamagedData)
				return
			}
			if why := err.Error(); why != said && ctx.Err() == nil {
				said = why
				r.Logger.Error("the node's data is damaged, and it keeps it for now", "damage", damage, "reason", why)
			}
		}
	}
}

// damageOf is the damage to the node's store that made replicas stop, if any. A
// replica that stopped since its state is another than the others' is replaced
// by itself.
func damageOf(shards map[sharding.ShardID]*eventlog.StoppedError) error {
	for _, stopped := range shards {
		var damage *store.DamageError
		if eventlog.ReasonOf(stopped) == sharding.StopDamaged && errors.As(stopped, &damage) {
			return damage
		}
	}
	return nil
}

// renew asks once whether the node may give its data up. Nothing is written
// down: a node that ends before it has put its data aside asks again.
func (r *Renewal) renew(ctx context.Context, damage error) error {
	id := r.Identity.Now()
	if !id.Several {
		return errors.New("it is the only node of its cluster")
	}
	if since := time.Since(time.UnixMilli(id.Renewed)); since < renewRest {
		return fmt.Errorf("it did so %v ago: look at its disk, and run 'hostd recover --rejoin'", since.Round(time.Second))
	}
	if err := r.Entry().Renew(ctx, r.AddressBook.Addresses()); err != nil {
		return err
	}
	r.Logger.Error("the node puts its damaged data aside and begins anew", "damage", damage)
	return nil
}

// saveOthers keeps the addresses of the other nodes where a start finds them
// that cannot read its own data. One that founded its cluster has no seeds.
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
		r.Logger.Warn("the addresses of other nodes were not written down", "error", err)
	}
}

// AtStart is given the error that a start failed with. Where that is
// damage, and the others let the node give its data up, it returns
// ErrDamagedData; else the error.
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
		r.Logger.Error("the node's data is damaged, and it asks whether it may put it aside", "damage", failed, "error", err)
		select {
		case <-time.After(renewEvery):
		case <-ctx.Done():
			return errors.Join(failed, err)
		}
	}
}
