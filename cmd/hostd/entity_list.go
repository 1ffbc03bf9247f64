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
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func newEntityList(std cli.Stdio) *cobra.Command {
	req := &entityv1.ListEntitiesRequest{}
	var limit int
	c := cli.Ask(std, "ls [TYPE]", "List the entities of a type, or of all types", 0, 1, func(ctx context.Context, s *cli.Session, args []string) (entityList, error) {
		types := args
		if len(args) == 0 {
			var err error
			if types, err = servedTypes(ctx, s.Client); err != nil {
				return entityList{}, err
			}
		}
		v := entityList{Entities: []entityLine{}, several: len(args) == 0}
		err := v.list(ctx, s.Client, req, types, limit)
		return v, err
	}, func(w io.Writer, v entityList) { v.write(w) })
	status := ""
	cli.Before(c, func([]string) error {
		if s := status; s != "" && !slices.Contains(entityStatuses(), s) {
			return cli.Usagef("--status must be one of %[2]s, got %[1]q", s, strings.Join(entityStatuses(), ", "))
		}
		if limit < 0 {
			return cli.Usagef("--limit must be 0 or more, got %d", limit)
		}
		req.Status = status
		return nil
	})
	c.Flags().StringVar(&req.IdPrefix, "prefix", "", "list only ids that start with this `text`")
	c.Flags().Uint32Var(&req.ShardId, "shard", 0, "list only entities of this `shard`")
	c.Flags().BoolVar(&req.ResidentOnly, "resident", false, "list only resident entities, whose state is in memory")
	c.Flags().StringVar(&status, "status", "", "list only entities with this `status`: "+strings.Join(entityStatuses(), ", "))
	c.Flags().IntVar(&limit, "limit", 1000, "maximum `number` of entities to list; 0 lists all")
	return c
}

// entityStatuses returns the values of --status.
func entityStatuses() []string {
	return []string{"active", quarantinedStatus, "deleted", "resident", "passivated", unverifiedStatus}
}

// servedTypes returns the entity types that modules serve, sorted.
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

// unverifiedStatus is the status of entities that a different module may have
// misread under an earlier release.
const unverifiedStatus = "unverified"

// quarantinedStatus is the status of an entity that does not run until a
// back-off has passed, because its guest calls kept failing.
const quarantinedStatus = "quarantined"

// entityList is a list of the entities of one or several types.
type entityList struct {
	Entities []entityLine `json:"entities"`
	several  bool
	more     bool // there are more entities than requested
}

type entityLine struct {
	EntityType string `json:"entityType"`
	EntityID   string `json:"entityId"`
	Sequence   uint64 `json:"sequence"`
	Status     string `json:"status"`
	Resident   bool   `json:"resident"`
	// Set for an unverified entity.
	Takeover *takeover `json:"takeover,omitempty"`
}

// takeover is the point in a history where a different module made the next
// snapshot.
type takeover struct {
	Sequence         uint64 `json:"sequence"`
	ModuleDigest     string `json:"moduleDigest"`
	SnapshotSequence uint64 `json:"snapshotSequence"`
	SnapshotDigest   string `json:"snapshotDigest"`
}

// list adds the entities of the types, one type after another, up to limit
// entities.
func (v *entityList) list(ctx context.Context, c *client.Client, req *entityv1.ListEntitiesRequest, types []string, limit int) error {
	for _, req.EntityType = range types {
		for e, err := range c.List(ctx, req) {
			if err != nil {
				return err
			}
			if v.more = limit > 0 && len(v.Entities) == limit; v.more {
				return nil
			}
			line := entityLine{EntityType: req.GetEntityType(), EntityID: e.GetEntityId(), Sequence: e.GetSequence(), Status: e.GetStatus(), Resident: e.GetResident()}
			if t := e.GetTakeover(); t != nil {
				line.Takeover = &takeover{t.GetSequence(), t.GetModuleDigest(), t.GetSnapshotSequence(), t.GetSnapshotDigest()}
			}
			v.Entities = append(v.Entities, line)
		}
	}
	return nil
}

// write adds a column for the type if several types were requested.
func (v entityList) write(w io.Writer) {
	head := "ID\tSEQUENCE\tSTATUS\tRESIDENT"
	if v.several {
		head = "TYPE\t" + head
	}
	takeovers := len(v.Entities) > 0 && v.Entities[0].Takeover != nil
	if takeovers {
		head += "\tWRITTEN BY\tUP TO\tSNAPSHOT BY\tOF"
	}
	cli.Table(w, head, func(row func(...any)) {
		for _, e := range v.Entities {
			cells := []any{e.EntityType, e.EntityID, e.Sequence, e.Status, e.Resident}
			if t := e.Takeover; takeovers {
				cells = append(cells, t.ModuleDigest, t.Sequence, t.SnapshotDigest, t.SnapshotSequence)
			}
			if v.several {
				row(cells...)
			} else {
				row(cells[1:]...)
			}
		}
	})
}

// Remark implements cli.Remark.
func (v entityList) Remark() (line string, failure error) {
	if v.more {
		line = "there are more; list them with a higher --limit"
	}
	return line, nil
}

func newEntityHot(std cli.Stdio) *cobra.Command {
	var limit uint32
	c := cli.Look(std, "hot", "List the entities with the most requests in the last 10 to 20 seconds", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (hotList, error) {
		res, err := cli.Unary(ctx, s, s.EntityService.ListHotEntities, &entityv1.ListHotEntitiesRequest{Limit: limit})
		return hotList{cli.Views(res.GetEntities()), append([]string{}, res.GetMissingNodes()...), res.GetEntities()}, err
	}, func(w io.Writer, v hotList) {
		cli.Table(w, "TYPE\tID\tSHARD\tNODE\tCOMMANDS/S\tFUEL/S\tFUEL OF NODE", func(row func(...any)) {
			for _, e := range v.entities {
				row(e.GetEntityType(), e.GetEntityId(), e.GetShardId(), e.GetNodeId(), fmt.Sprintf("%.1f", e.GetCommandsPerSecond()),
					fmt.Sprintf("%.0f", e.GetFuelPerSecond()), fmt.Sprintf("%.1f %%", 100*e.GetFuelShare()))
			}
		})
	})
	c.Flags().Uint32Var(&limit, "limit", 20, "maximum `number` of entities to list, up to 1,000")
	return c
}

type hotList struct {
	Entities     []*cli.Object `json:"entities"`
	MissingNodes []string      `json:"missingNodes"`
	entities     []*entityv1.ListHotEntitiesResponse_Entity
}

// Remark implements cli.Remark.
func (v hotList) Remark() (line string, failure error) {
	if len(v.MissingNodes) > 0 {
		line = "these nodes did not answer: " + strings.Join(v.MissingNodes, ", ")
	}
	return line, nil
}
