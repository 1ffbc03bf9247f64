package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/entities"
)

func newEntity(std cli.Stdio) *cobra.Command {
	return cli.Group("entity", "Send commands to entities, query and inspect them",
		newEntitySend(std), newEntityQuery(std), newEntityEvents(std), entities.NewRecords(std), entities.NewTimers(std), entities.NewMessages(std), newEntityGet(std), newEntityState(std),
		newEntityList(std), newEntityHot(std), newEntityTagged(std), newEntityTail(std), newEntityPassivate(std), newEntityClear(std), newEntitySkipTimer(std), newEntityDelete(std), newEntityDeadLetters(std))
}

// answer is an entity's answer as it is printed.
type answer struct {
	cli.Payload
	Sequence uint64 `json:"sequence"`
	Fuel     uint64 `json:"fuel"`
}

// reply is an entity's reply to a command.
type reply struct {
	answer
	EventCount int    `json:"eventCount"`
	Duplicate  bool   `json:"duplicate"`
	NodeID     string `json:"nodeId"`
	CommandID  string `json:"commandId"`
}

func newEntitySend(std cli.Stdio) *cobra.Command {
	var c *cobra.Command
	var name cli.Named
	var expected int64
	c = cli.Ask(std, "send TYPE ID COMMAND [JSON]", "Send a command to an entity and print its reply", 3, 4, func(ctx context.Context, s *cli.Session, args []string) (reply, error) {
		data, err := cli.PayloadArg(std, args, 3)
		if err != nil {
			return reply{}, err
		}
		command := client.Command{EntityType: args[0], EntityID: args[1], Name: args[2], Data: data, ID: name.ID, FirstTried: name.At()}
		if c.Flags().Changed("expected-sequence") {
			sequence := uint64(expected)
			command.ExpectedSequence = &sequence
		}
		r, err := s.Send(ctx, command)
		if client.OutcomeUnknown(err) && client.CodeOf(err) != connect.CodeAborted {
			err = cli.Hint(err, "The outcome is unknown: send again with --command-id "+command.ID+", and with --first-tried, to learn it.")
		}
		return reply{answer{cli.NewPayload(r.Data), r.Sequence, r.Fuel}, r.EventCount, r.Duplicate, r.NodeID, command.ID}, err
	}, func(w io.Writer, v reply) {
		if text := v.Text(); text != "" {
			fmt.Fprintln(w, text)
		}
		again := ""
		if v.Duplicate {
			again = ", the stored reply of an earlier command with this id"
		}
		fmt.Fprintf(std.Err, "sequence %d, %d events, command id %s%s\n", v.Sequence, v.EventCount, v.CommandID, again)
	})
	c.Long = "Sends a command to an entity and prints its reply. JSON is the payload; use - to read it from standard input. " +
		"Every command has an id. If you send it again with the same id, it has no second effect and returns the first reply."
	cli.AddNamed(c, &name, "command")
	c.Flags().Int64Var(&expected, "expected-sequence", math.MinInt64, "reject the command unless the entity is at this `sequence`")
	c.Flags().Lookup("expected-sequence").DefValue = ""
	cli.Before(c, func([]string) error {
		if expected < 0 && c.Flags().Changed("expected-sequence") {
			return cli.Usagef("--expected-sequence must be 0 or more, got %d", expected)
		}
		return nil
	})
	return c
}

func newEntityQuery(std cli.Stdio) *cobra.Command {
	var stale bool
	c := cli.Ask(std, "query TYPE ID QUERY [JSON]", "Query an entity and print its reply", 3, 4, func(ctx context.Context, s *cli.Session, args []string) (answer, error) {
		data, err := cli.PayloadArg(std, args, 3)
		if err != nil {
			return answer{}, err
		}
		a, err := s.Query(ctx, client.Query{EntityType: args[0], EntityID: args[1], Name: args[2], Data: data, Stale: stale})
		return answer{cli.NewPayload(a.Data), a.Sequence, a.Fuel}, err
	}, func(w io.Writer, v answer) {
		if text := v.Text(); text != "" {
			fmt.Fprintln(w, text)
		}
		fmt.Fprintf(std.Err, "sequence %d\n", v.Sequence)
	})
	c.Flags().BoolVar(&stale, "stale", false, "skip the quorum check that the state is the newest")
	return c
}
