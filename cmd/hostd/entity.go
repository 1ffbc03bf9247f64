package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

func newEntity(std stdio) *cobra.Command {
	return group("entity", "Send commands to entities and look at them",
		newEntitySend(std), newEntityQuery(std), newEntityEvents(std), newEntityGet(std), newEntityState(std),
		newEntityList(std), newEntityHot(std), newEntityTail(std), newEntityPassivate(std), newEntityClear(std), newEntitySkipTimer(std), newEntityDelete(std), newEntityLetters(std))
}

// maxPayloadBytes bounds a payload that is read from the standard input.
const maxPayloadBytes = 1 << 20

// payloadArg returns the payload given as argument i: its text, or what the
// standard input holds when it is a dash.
func payloadArg(std stdio, args []string, i int) ([]byte, error) {
	if len(args) <= i {
		return nil, nil
	}
	if args[i] != "-" {
		return []byte(args[i]), nil
	}
	data, err := io.ReadAll(io.LimitReader(std.in, maxPayloadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	if len(data) > maxPayloadBytes {
		return nil, fmt.Errorf("the payload has more than %d bytes", maxPayloadBytes)
	}
	return data, nil
}

func newEntitySend(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var name named
	var expected int64
	c := leaf("send TYPE ID COMMAND [JSON]", "Run a command on an entity and print its reply", 3, 4, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if err := name.check(); err != nil {
			return err
		}
		data, err := payloadArg(std, args, 3)
		if err != nil {
			return err
		}
		command := client.Command{EntityType: args[0], EntityID: args[1], Name: args[2], Data: data, ID: name.id, FirstTried: name.at()}
		if cmd.Flags().Changed("expected-sequence") {
			if expected < 0 {
				return usagef("--expected-sequence is %d, must be 0 or more", expected)
			}
			sequence := uint64(expected)
			command.ExpectedSequence = &sequence
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		reply, err := c.Send(ctx, command)
		if err != nil {
			if client.OutcomeUnknown(err) && client.CodeOf(err) != connect.CodeAborted {
				return hint(fmt.Errorf("send: %w", err), "The outcome is unknown: send again with --command-id "+command.ID+", and with --first-tried, to learn it.")
			}
			return fmt.Errorf("send: %w", err)
		}
		v := struct {
			payload
			Sequence   uint64 `json:"sequence"`
			EventCount int    `json:"eventCount"`
			Duplicate  bool   `json:"duplicate"`
			NodeID     string `json:"nodeId"`
			CommandID  string `json:"commandId"`
			Fuel       uint64 `json:"fuel"`
		}{newPayload(reply.Data), reply.Sequence, reply.EventCount, reply.Duplicate, reply.NodeID, command.ID, reply.Fuel}
		return out.print(v, func(w io.Writer) {
			if text := v.text(); text != "" {
				fmt.Fprintln(w, text)
			}
			again := ""
			if v.Duplicate {
				again = ", the stored reply of an earlier command with this id"
			}
			fmt.Fprintf(std.err, "sequence %d, %d events, command id %s%s\n", v.Sequence, v.EventCount, v.CommandID, again)
		})
	})
	c.Long = "Runs a command on an entity and prints its reply. JSON is the payload; a dash reads it from the standard input. " +
		"The command has an id: sent again with the same id it has no second effect and gets the first reply."
	addNamed(c, &name, "command")
	c.Flags().Int64Var(&expected, "expected-sequence", math.MinInt64, "refuse the command unless the entity is at this `sequence`")
	c.Flags().Lookup("expected-sequence").DefValue = ""
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newEntityQuery(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var stale bool
	c := leaf("query TYPE ID QUERY [JSON]", "Ask an entity and print its answer", 3, 4, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		data, err := payloadArg(std, args, 3)
		if err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err := c.Query(ctx, client.Query{EntityType: args[0], EntityID: args[1], Name: args[2], Data: data, Stale: stale})
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		v := struct {
			payload
			Sequence uint64 `json:"sequence"`
			Fuel     uint64 `json:"fuel"`
		}{newPayload(answer.Data), answer.Sequence, answer.Fuel}
		return out.print(v, func(w io.Writer) {
			if text := v.text(); text != "" {
				fmt.Fprintln(w, text)
			}
			fmt.Fprintf(std.err, "sequence %d\n", v.Sequence)
		})
	})
	c.Flags().BoolVar(&stale, "stale", false, "answer from memory, without asking a quorum whether it is the latest")
	r, out = addRemote(c), addOutput(c, std)
	return c
}
