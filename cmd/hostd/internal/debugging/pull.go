package debugging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging/entityfile"
	"github.com/hostd/hostd/host/telemetry"
)

// maxPull is the default limit of the events in a file, in bytes.
const maxPull = 1 << 30

// NewPull returns the command 'hostd pull'.
func NewPull(std cli.Stdio) *cobra.Command {
	var path string
	var most int64
	c := cli.Talk(std, "pull TYPE ID -o FILE", "Download an entity's history and its module to a file", 2, 2, func(ctx context.Context, s *cli.Session, args []string) error {
		about, err := pull(ctx, s, args[0], args[1], path, most)
		if err != nil {
			return err
		}
		events, base := about.Sequence, ""
		if b := about.Base; b != nil {
			events -= b.Sequence
			base = fmt.Sprintf("the state at event %d, before which events were truncated, ", b.Sequence)
		}
		fmt.Fprintf(std.Err, "%s%d events of %s %s, and module %s: hostd step %s\n", base, events, cli.Clean(args[0]), cli.Clean(args[1]), about.ModuleDigest, cli.Clean(path))
		return nil
	})
	c.Long = "Writes the events of an entity, or its states if the type stores states, from the first to the newest, and the module that serves its type. " +
		"'hostd step' replays the file without a node. The command needs the verbs read and download. If the first events were truncated, the file starts with the earliest state that the module can read."
	c.Flags().StringVarP(&path, "file", "o", "", "`file` to write")
	c.Flags().Int64Var(&most, "max-bytes", maxPull, "fail if the payloads of the events exceed this size in `bytes`")
	cli.Before(c, func([]string) error {
		if path == "" || most < 1 {
			return cli.Usagef("pull needs -o FILE, and --max-bytes of at least 1")
		}
		return nil
	})
	return c
}

// pull writes the file, which appears under its name only once it is complete.
// Only its owner can read it, because it contains the data of entities.
func pull(ctx context.Context, s *cli.Session, entityType, id, path string, most int64) (about entityfile.About, err error) {
	c := s.Client
	e, err := c.Entity(ctx, entityType, id)
	if err != nil {
		return about, err
	}
	if e.GetSequence() == 0 {
		return about, errors.New("the entity has no events")
	}
	m, err := c.Module(ctx, e.GetModuleDigest())
	if err != nil {
		return about, err
	}
	manifest, err := jsonvalue.Append(nil, structpb.NewStructValue(m.GetManifest()))
	if err != nil {
		return about, err
	}
	wasm, err := c.Download(ctx, e.GetModuleDigest())
	if err != nil {
		return about, err
	}
	about = entityfile.About{
		EntityType: entityType, EntityID: id, Sequence: e.GetSequence(), ModuleDigest: e.GetModuleDigest(), Manifest: manifest,
		PulledAt: time.Now().UTC(), Release: telemetry.Version(),
	}
	if about.Base, err = base(ctx, s, &about, m.GetManifest()); err != nil {
		return about, err
	}
	from := uint64(1)
	if about.Base != nil {
		from = about.Base.Sequence + 1
		about.Sequence = max(about.Sequence, about.Base.Sequence)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".hostd-pull-*")
	if err != nil {
		return about, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	w, err := entityfile.NewWriter(f, about, wasm)
	if err != nil {
		return about, err
	}
	events := c.ReadEvents(ctx, client.EventRange{EntityType: entityType, EntityID: id, From: from, To: about.Sequence})
	if from > about.Sequence {
		events = func(func(client.Event, error) bool) {}
	}
	for event, err := range events {
		if err != nil {
			return about, err
		}
		if most -= int64(len(event.Data)); most < 0 {
			return about, cli.Hint(errors.New("the events exceed --max-bytes"), "Set a higher --max-bytes.")
		}
		err = w.Event(entityfile.Event{
			Sequence: event.Sequence, RecordedAt: event.RecordedAt.UTC(), EventType: event.Type, Data: event.Data,
			CommandID: event.CommandID, Tags: event.Tags, ModuleDigest: event.ModuleDigest,
		})
		if err != nil {
			return about, err
		}
	}
	if err := w.Close(); err != nil {
		return about, err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return about, err
	}
	return about, os.Rename(f.Name(), path)
}
