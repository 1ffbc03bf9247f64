package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// newEntityLetters is about the sends that were refused and whose outcome nobody waits for.
func newEntityLetters(std stdio) *cobra.Command {
	return group("deadletters", "List, deliver again and discard sends that were refused",
		newLettersList(std), newLettersRetry(std), newLettersDiscard(std))
}

// letterShown is a dead letter as the command line shows it.
type letterShown struct {
	ID        string    `json:"id"`
	RefusedAt time.Time `json:"refusedAt"`
	Source    string    `json:"source"`
	Entity    string    `json:"entity"`
	Command   string    `json:"command"`
	Data      string    `json:"data"`
	Code      string    `json:"code"`
	Message   string    `json:"message"`
}

func newLettersList(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var shard uint32
	c := leaf("ls", "List dead letters: who sent what to whom, and why it was refused", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		shown := []letterShown{}
		for token := ""; ; {
			res, err := r.services().entities.ListDeadLetters(ctx, connect.NewRequest(&entityv1.ListDeadLettersRequest{ShardId: shard, PageToken: token}))
			if err != nil {
				return fmt.Errorf("deadletters ls: %w", publicError(err))
			}
			for _, l := range res.Msg.GetLetters() {
				shown = append(shown, letterShown{
					ID: l.GetId(), RefusedAt: l.GetRefusedAt().AsTime(), Source: l.GetSourceType() + "/" + l.GetSourceId(),
					Entity: l.GetEntityType() + "/" + l.GetEntityId(), Command: l.GetCommand(), Data: string(l.GetData()), Code: l.GetCode(), Message: l.GetMessage(),
				})
			}
			if token = res.Msg.GetNextPageToken(); token == "" {
				break
			}
		}
		return out.print(shown, func(w io.Writer) {
			fmt.Fprintln(w, "ID\tREFUSED\tFROM\tTO\tCOMMAND\tCODE\tMESSAGE")
			for _, l := range shown {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.RefusedAt.Format(time.RFC3339), l.Source, l.Entity, l.Command, l.Code, l.Message)
			}
		})
	})
	c.Flags().Uint32Var(&shard, "shard", 0, "only those of this `shard`")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newLettersRetry(std stdio) *cobra.Command {
	return letterAct(std, "retry ID", "Deliver a dead letter again; it stays when the entity refuses it again", "delivered",
		func(ctx context.Context, r *remote, id string) error {
			_, err := r.services().entities.RetryDeadLetter(ctx, connect.NewRequest(&entityv1.RetryDeadLetterRequest{Id: id}))
			return err
		})
}

func newLettersDiscard(std stdio) *cobra.Command {
	return letterAct(std, "discard ID", "Forget a dead letter for good", "discarded", func(ctx context.Context, r *remote, id string) error {
		_, err := r.services().entities.DiscardDeadLetter(ctx, connect.NewRequest(&entityv1.DiscardDeadLetterRequest{Id: id}))
		return err
	})
}

func letterAct(std stdio, use, short, done string, do func(context.Context, *remote, string) error) *cobra.Command {
	var r *remote
	var out *output
	c := leaf(use, short, 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		if err := do(ctx, r, args[0]); err != nil {
			return fmt.Errorf("deadletters: %w", publicError(err))
		}
		v := struct {
			ID string `json:"id"`
		}{args[0]}
		return out.print(v, func(w io.Writer) { fmt.Fprintln(w, done) })
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}
