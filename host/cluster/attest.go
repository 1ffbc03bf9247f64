package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/staledisk"
)

// attestPause is the pause between two rounds of questions.
const attestPause = 100 * time.Millisecond

// Starts durably records the incarnations of other nodes.
type Starts interface {
	// RecordStart records the incarnation s if it is new, and returns the
	// node's latest known incarnation. metadata returns the newest incarnation
	// of a node in the metadata, or 0.
	RecordStart(s staledisk.Start, metadata func(sharding.NodeID) uint64) (latest uint64, err error)
}

// votersOf returns the nodes of a shard's voters, according to the metadata.
func votersOf(view *meta.View, shard sharding.ShardID) (nodes []sharding.NodeID) {
	placement, _ := view.Placement(shard)
	for _, r := range placement.Replicas {
		if r.State == meta.ReplicaVoter {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// Attest implements peer.Control. A node that is itself still being checked
// answers too, with what it knows.
func (c *Control) Attest(ctx context.Context, r *peerv1.VouchRequest) (*peerv1.VouchResponse, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	select {
	case <-o.Recovered:
	default:
		return nil, errNotOpen
	}
	index, view, node := o.Metadata.AppliedIndex(), o.Metadata.View(), peer.CallerOf(ctx).Node
	known, _ := view.Member(node)
	asks := meta.Member{Node: node, PeerAddress: r.GetAddress(), Incarnation: peer.CallerOf(ctx).Incarnation, Disk: known.Disk}
	if err := o.verifyApplicant(ctx, asks); err != nil {
		return nil, err
	}
	latest, err := o.Starts.RecordStart(staledisk.Start{Node: node, Attested: r.GetVouched(), Requested: r.GetAsked()}, view.LastStart)
	if err != nil {
		return nil, err
	}
	out := &peerv1.VouchResponse{Latest: latest, Index: index}
	for _, voter := range votersOf(view, sharding.MetaShard) {
		m, _ := view.Member(voter)
		out.Voters = append(out.Voters, &peerv1.ReplicaAddress{NodeId: string(voter), Address: m.PeerEndpoint()})
	}
	return out, nil
}

// Prove asks other nodes about an incarnation of this node until the
// stale-disk check has a result or ctx ends. It asks the seeds, the known
// addresses and the voters that any answer names. It gets a new Entry in
// each round, because the address at which other nodes reach this one
// changes with the cluster version. refused is called after each round with
// the rejections that no retry can change, or nil if there are none.
func Prove(ctx context.Context, in entrance, p *staledisk.Check, s staledisk.Start, known *AddressBook, refused func(error)) (staledisk.Result, error) {
	named, silent := []string{}, time.Now()
	for p.Result() == staledisk.Pending {
		e := in.Entry()
		addresses := slices.Concat(known.Addresses(), e.addresses(ctx), named)
		slices.Sort(addresses)
		answers, failed := e.askAttestations(ctx, s, slices.Compact(addresses))
		final := slices.DeleteFunc(slices.Clone(failed), func(err error) bool { return !errors.Is(err, peer.ErrRefused) })
		refused(errors.Join(final...))
		for _, a := range answers {
			answer := staledisk.Answer{From: a.node, Latest: a.GetLatest(), Index: a.GetIndex()}
			for _, v := range a.GetVoters() {
				answer.Voters = append(answer.Voters, sharding.NodeID(v.GetNodeId()))
				if at := v.GetAddress(); at != "" && !e.isOwn(at) && !slices.Contains(named, at) {
					named = append(named, at)
				}
			}
			p.AddAnswer(answer)
		}
		if p.Result() != staledisk.Pending {
			break
		}
		if time.Since(silent) >= logSearching {
			silent = time.Now()
			e.Logger.Info("waiting for a majority of the metadata voters before this node votes", "voters", p.Voters(), "answered", len(answers), "error", errors.Join(failed...))
		}
		select {
		case <-time.After(attestPause):
		case <-ctx.Done():
			return staledisk.Pending, ctx.Err()
		}
	}
	return p.Result(), nil
}

type attestation struct {
	node sharding.NodeID
	*peerv1.VouchResponse
}

// askAttestations asks all addresses concurrently. It returns the answers and the
// errors of the nodes that did not answer.
func (e Entry) askAttestations(ctx context.Context, s staledisk.Start, addresses []string) ([]attestation, []error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	found, failed := make([]attestation, len(addresses)), make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			node, r, err := e.Peers.Attest(ctx, address, &peerv1.VouchRequest{Vouched: s.Attested, Asked: s.Requested, Address: e.PeersAt})
			if err != nil {
				failed[i] = fmt.Errorf("%s: %w", address, err)
			} else if node != s.Node {
				found[i] = attestation{node, r}
			}
		})
	}
	asked.Wait()
	return slices.DeleteFunc(found, func(v attestation) bool { return v.VouchResponse == nil }), slices.DeleteFunc(failed, func(err error) bool { return err == nil })
}
