package main

import (
	"context"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func newEntityTail(std stdio) *cobra.Command {
	var r *remote
	var out *output
	sub := client.Subscription{}
	var once bool
	c := leaf("tail TYPE", "Print the events of a whole type as they are committed", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		sub.EntityType, sub.Follow = args[0], sub.Follow && !once
		sub.Skipped = func(events uint64) { fmt.Fprintf(std.err, "%d events that were cut are passed over\n", events) }
		for e, err := range c.Subscribe(ctx, sub) {
			if err != nil {
				return following(ctx, sub.Follow, fmt.Errorf("tail: %w", err))
			}
			v := eventView{EntityID: e.EntityID, Sequence: e.Sequence, EventType: e.Type, payload: newPayload(e.Data), CommandID: e.CommandID,
				RecordedAt: e.RecordedAt, Tags: append([]string{}, e.Tags...), ModuleDigest: e.ModuleDigest, Cursor: e.Cursor()}
			if err := out.line(v, v.text()); err != nil {
				return err
			}
		}
		return nil
	})
	c.Long = "Prints the events of all entities of a type, each once, from the beginning or after a cursor, in the order of each entity. It goes on at another node when one goes away."
	c.Flags().StringVar(&sub.Tag, "tag", "", "only events with this `tag`")
	c.Flags().StringVar(&sub.Cursor, "cursor", "", "go on after the event that had this `cursor`; -o json shows it")
	c.Flags().BoolVarP(&sub.Follow, "follow", "f", true, "go on with new events until interrupted")
	c.Flags().BoolVar(&once, "once", false, "stop at the newest event")
	c.Flags().BoolVar(&sub.SkipCut, "skip-cut", false, "go on with the first event that is kept where events were cut, and say how many")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newEntityPassivate(std stdio) *cobra.Command {
	var r *remote
	c := leaf("passivate TYPE ID", "Drop an entity from memory; its next command loads it again", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		_, err = r.services().entities.Passivate(ctx, connect.NewRequest(&entityv1.PassivateRequest{EntityType: args[0], EntityId: args[1]}))
		if err != nil {
			return fmt.Errorf("passivate: %w", publicError(err))
		}
		fmt.Fprintln(std.err, "passivated")
		return nil
	})
	r = addRemote(c)
	return c
}

func newEntityDelete(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var name named
	c := leaf("delete TYPE ID", "Write an entity's tombstone; its history stays", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if err := name.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		res, err := r.services().entities.Delete(ctx, connect.NewRequest(&entityv1.DeleteRequest{
			EntityType: args[0], EntityId: args[1], CommandId: name.id, FirstAttemptAgeMs: name.ageMs(),
		}))
		if err != nil {
			return fmt.Errorf("delete: %w", publicError(err))
		}
		v := struct {
			Sequence  uint64 `json:"sequence"`
			CommandID string `json:"commandId"`
		}{res.Msg.GetSequence(), name.id}
		return out.print(v, func(w io.Writer) { fmt.Fprintf(w, "deleted at sequence %d\n", v.Sequence) })
	})
	addNamed(c, &name, "deletion")
	r, out = addRemote(c), addOutput(c, std)
	return c
}
