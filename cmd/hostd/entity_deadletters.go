package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// newEntityDeadLetters returns the commands for dead letters: rejected sends
// whose outcome no entity waits for.
func newEntityDeadLetters(std cli.Stdio) *cobra.Command {
	return cli.Group("deadletters", "List, redeliver and discard dead letters, the messages that entities rejected",
		newDeadLettersList(std), newDeadLettersRetry(std), newDeadLettersDiscard(std))
}

// deadLetterShown is a dead letter as it is printed.
type deadLetterShown struct {
	ID         string    `json:"id"`
	RejectedAt time.Time `json:"rejectedAt"`
	Source     string    `json:"source"`
	Entity     string    `json:"entity"`
	Command    string    `json:"command"`
	Data       string    `json:"data"`
	Code       string    `json:"code"`
	Message    string    `json:"message"`
}

func newDeadLettersList(std cli.Stdio) *cobra.Command {
	var shard uint32
	c := cli.Look(std, "ls", "List dead letters with source, destination and the reason of the rejection", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) ([]deadLetterShown, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		shown := []deadLetterShown{}
		for token := ""; ; {
			res, err := cli.Unary(ctx, s, s.EntityService.ListDeadLetters, &entityv1.ListDeadLettersRequest{ShardId: shard, PageToken: token})
			if err != nil {
				return nil, err
			}
			for _, l := range res.GetLetters() {
				shown = append(shown, deadLetterShown{
					ID: l.GetId(), RejectedAt: l.GetRejectedAt().AsTime(), Source: l.GetSourceType() + "/" + l.GetSourceId(),
					Entity: l.GetEntityType() + "/" + l.GetEntityId(), Command: l.GetCommand(), Data: string(l.GetData()), Code: l.GetCode(), Message: l.GetMessage(),
				})
			}
			if token = res.GetNextPageToken(); token == "" {
				return shown, nil
			}
		}
	}, func(w io.Writer, shown []deadLetterShown) {
		cli.Table(w, "ID\tREFUSED\tFROM\tTO\tCOMMAND\tCODE\tMESSAGE", func(row func(...any)) {
			for _, l := range shown {
				row(l.ID, l.RejectedAt.Format(time.RFC3339), l.Source, l.Entity, l.Command, l.Code, l.Message)
			}
		})
	})
	c.Flags().Uint32Var(&shard, "shard", 0, "list only dead letters of this `shard`")
	return c
}

func newDeadLettersRetry(std cli.Stdio) *cobra.Command {
	return onDeadLetter(std, "retry ID", "Redeliver a dead letter, and keep it if the entity rejects it again", "delivered", func(ctx context.Context, s *cli.Session, id string) error {
		_, err := cli.Unary(ctx, s, s.EntityService.RetryDeadLetter, &entityv1.RetryDeadLetterRequest{Id: id})
		return err
	})
}

func newDeadLettersDiscard(std cli.Stdio) *cobra.Command {
	return onDeadLetter(std, "discard ID", "Discard a dead letter permanently", "discarded", func(ctx context.Context, s *cli.Session, id string) error {
		_, err := cli.Unary(ctx, s, s.EntityService.DiscardDeadLetter, &entityv1.DiscardDeadLetterRequest{Id: id})
		return err
	})
}

type deadLetterID struct {
	ID string `json:"id"`
}

func onDeadLetter(std cli.Stdio, use, short, done string, do func(context.Context, *cli.Session, string) error) *cobra.Command {
	return cli.Ask(std, use, short, 1, 1, func(ctx context.Context, s *cli.Session, args []string) (deadLetterID, error) {
		return deadLetterID{args[0]}, do(ctx, s, args[0])
	}, func(w io.Writer, _ deadLetterID) { fmt.Fprintln(w, done) })
}
