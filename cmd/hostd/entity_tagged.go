package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func newEntityTagged(std cli.Stdio) *cobra.Command {
	var limit int
	var prefix string
	c := cli.Ask(std, "tagged TYPE TAG", "List the entities of a type that have events with a tag", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (taggedList, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		v := taggedList{Entities: []taggedLine{}}
		err := v.collect(s.Subscribe(ctx, client.Subscription{EntityType: args[0], Tag: args[1], SkipTruncated: true}), prefix, limit)
		return v, err
	}, func(w io.Writer, v taggedList) { v.write(w) })
	c.Long = "Lists the entities of a type that have events with a tag, with the number of these events and the time of the last one. " +
		"It reads every event with the tag, which takes a while if there are many. It does not count truncated events."
	cli.Before(c, func([]string) error {
		if limit < 1 || limit > maxTagged {
			return cli.Usagef("--limit must be between 1 and %[2]d, got %[1]d", limit, maxTagged)
		}
		return nil
	})
	c.Flags().StringVar(&prefix, "prefix", "", "list only ids that start with this `text`")
	c.Flags().IntVar(&limit, "limit", 1000, "maximum `number` of entities to list")
	cli.SetTimeout(c, 10*time.Minute)
	return c
}

// maxTagged limits the entities in a list.
const maxTagged = 100_000

// taggedList lists the entities that have events with a tag.
type taggedList struct {
	Entities []taggedLine `json:"entities"`
	more     bool         // there are more entities than requested
}

type taggedLine struct {
	EntityID string    `json:"entityId"`
	Events   uint64    `json:"events"` // number of events with the tag
	Last     time.Time `json:"last"`   // time of its last such event
}

// collect counts events by entity, for the first limit entities, and sorts the
// entities.
func (v *taggedList) collect(events iter.Seq2[client.Delivery, error], prefix string, limit int) error {
	places := map[string]int{}
	for e, err := range events {
		if err != nil {
			return err
		}
		if !strings.HasPrefix(e.EntityID, prefix) {
			continue
		}
		i, known := places[e.EntityID]
		if !known && len(v.Entities) == limit {
			v.more = true // the listed entities may have further events
			continue
		}
		if !known {
			i = len(v.Entities)
			places[e.EntityID] = i
			v.Entities = append(v.Entities, taggedLine{EntityID: e.EntityID})
		}
		line := &v.Entities[i]
		line.Events++
		if e.RecordedAt.After(line.Last) {
			line.Last = e.RecordedAt.UTC()
		}
	}
	slices.SortFunc(v.Entities, func(a, b taggedLine) int { return strings.Compare(a.EntityID, b.EntityID) })
	return nil
}

func (v taggedList) write(w io.Writer) {
	cli.Table(w, "ID\tEVENTS\tLAST", func(row func(...any)) {
		for _, e := range v.Entities {
			row(e.EntityID, e.Events, e.Last.Format(time.RFC3339))
		}
	})
}

// Remark implements cli.Remark.
func (v taggedList) Remark() (line string, failure error) {
	if v.more {
		line = fmt.Sprintf("there are more than %d; list them with a higher --limit", len(v.Entities))
	}
	return line, nil
}
