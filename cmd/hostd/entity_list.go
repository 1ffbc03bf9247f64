package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func newEntityList(std stdio) *cobra.Command {
	var r *remote
	var out *output
	req := &entityv1.ListEntitiesRequest{}
	var limit int
	c := leaf("ls [TYPE]", "List the entities of a type, or of all", 0, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if s := req.GetStatus(); s != "" && !slices.Contains(entityStatuses(), s) {
			return usagef("--status is %q, must be one of %s", s, strings.Join(entityStatuses(), ", "))
		}
		if limit < 0 {
			return usagef("--limit is %d, must be 0 or more", limit)
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		types := args
		if len(args) == 0 {
			if types, err = servedTypes(ctx, c); err != nil {
				return fmt.Errorf("ls: %w", err)
			}
		}
		return listEntities(ctx, std, c, out, req, types, limit, len(args) == 0)
	})
	c.Flags().StringVar(&req.IdPrefix, "prefix", "", "only ids that begin with this `text`")
	c.Flags().Uint32Var(&req.ShardId, "shard", 0, "only ids of this `shard`")
	c.Flags().BoolVar(&req.ResidentOnly, "resident", false, "only entities whose state is in memory")
	c.Flags().StringVar(&req.Status, "status", "", "only entities with this `status`: "+strings.Join(entityStatuses(), ", "))
	c.Flags().IntVar(&limit, "limit", 1000, "at most this `many`; 0 is all")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

// entityStatuses are what entities can be listed by.
func entityStatuses() []string {
	return []string{"active", "parked", "deleted", "resident", "passivated"}
}

// servedTypes are the entity types that some module serves, in order.
func servedTypes(ctx context.Context, c *client.Client) ([]string, error) {
	modules, err := c.Modules(ctx)
	if err != nil {
		return nil, err
	}
	var types []string
	for _, m := range modules {
		types = append(types, m.GetActiveFor()...)
	}
	slices.Sort(types)
	return types, nil
}

type entityLine struct {
	EntityType string `json:"entityType"`
	EntityID   string `json:"entityId"`
	Sequence   uint64 `json:"sequence"`
	Status     string `json:"status"`
	Resident   bool   `json:"resident"`
}

// listEntities lists the types one after another, and says of which each is
// where several were asked for.
func listEntities(ctx context.Context, std stdio, c *client.Client, out *output, req *entityv1.ListEntitiesRequest, types []string, limit int, several bool) error {
	v := struct {
		Entities []entityLine `json:"entities"`
	}{[]entityLine{}}
	more := false
	for _, req.EntityType = range types {
		for e, err := range c.List(ctx, req) {
			if err != nil {
				return fmt.Errorf("ls: %w", err)
			}
			if more = limit > 0 && len(v.Entities) == limit; more {
				break
			}
			v.Entities = append(v.Entities, entityLine{req.GetEntityType(), e.GetEntityId(), e.GetSequence(), e.GetStatus(), e.GetResident()})
		}
		if more {
			break
		}
	}
	err := out.print(v, func(w io.Writer) {
		head := "ID\tSEQUENCE\tSTATUS\tRESIDENT"
		if several {
			head = "TYPE\t" + head
		}
		table(w, head, func(row func(...any)) {
			for _, e := range v.Entities {
				if cells := []any{e.EntityType, e.EntityID, e.Sequence, e.Status, e.Resident}; several {
					row(cells...)
				} else {
					row(cells[1:]...)
				}
			}
		})
	})
	if more {
		fmt.Fprintf(std.err, "there are more; see them with --limit\n")
	}
	return err
}
