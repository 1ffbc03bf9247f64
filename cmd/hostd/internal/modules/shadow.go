package modules

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/sharding"
)

// noShadow is the value that removes a shadow module.
const noShadow = "off"

// Shadow is the flag that makes a module decide a share of a type's commands in
// the shadow of the serving module, without effect.
type Shadow struct {
	// Percent is the share as given, "10%", or "off"; empty without the flag.
	Percent string
}

// Flags adds the flag to a command.
func (s *Shadow) Flags(c *cobra.Command) {
	c.Flags().StringVar(&s.Percent, "shadow", "", "`share` of commands, such as 10%, that the module also decides without serving them; the node counts the differences and discards the results; off ends it")
}

// Parse checks the flag after it is read. others are flags that cannot be
// combined with it.
func (s *Shadow) Parse(c *cobra.Command, others ...string) error {
	if !c.Flags().Changed("shadow") {
		return nil
	}
	for _, name := range others {
		if c.Flags().Changed(name) {
			return cli.Usagef("--%s cannot be combined with --shadow, because a shadow module serves no entities", name)
		}
	}
	if s.Percent == noShadow {
		return nil
	}
	if _, err := trial.ParseShadowSetting(s.value(strings.Repeat("0", 64))); err != nil {
		return cli.Usagef("--shadow must be a percentage between 0.01%% and 100%%, or %s, got %q", noShadow, s.Percent)
	}
	return nil
}

// value returns the value of the setting.
func (s *Shadow) value(digest string) string { return digest + " " + s.Percent }

// Put sets or removes a shadow module of a type, given its full digest. It
// returns the revision of the setting.
func (s *Shadow) Put(ctx context.Context, to *cli.Session, entityType, digest string) (revision uint64, err error) {
	key := "entity." + entityType + ".shadow"
	if s.Percent != noShadow {
		return to.PutSetting(ctx, key, s.value(digest))
	}
	is, err := to.Setting(ctx, key)
	if err != nil {
		return 0, err
	}
	if now, _, _ := strings.Cut(is.GetValue(), " "); now != digest {
		return 0, fmt.Errorf("the shadow module of %s is %s, not %s", cli.Clean(entityType), cli.Clean(now), digest)
	}
	return to.PutSetting(ctx, key, "")
}

// Write prints the effect of Put.
func (s *Shadow) Write(w io.Writer, entityType, digest string) {
	if s.Percent == noShadow {
		fmt.Fprintf(w, "%s no longer shadows %s\n", digest, cli.Clean(entityType))
		return
	}
	fmt.Fprintf(w, "%s of the commands of %s are shadowed by %s; 'hostd module rollout %s' shows the differences\n", s.Percent, cli.Clean(entityType), digest, cli.Clean(entityType))
}

// writeShadow prints the shadow module, if there is one.
func writeShadow(w io.Writer, s *modulev1.Shadow) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "%s of the commands are shadowed by %s: %d compared, %d differ", sharding.Percent(s.GetShare()), s.GetDigest(), s.GetCompared(), s.GetDiffering())
	for i, d := range s.GetDifferences() {
		fmt.Fprintf(w, "%s%s %d", [...]string{" in ", ", "}[min(i, 1)], cli.Clean(d.GetKind()), d.GetCommands())
	}
	fmt.Fprintf(w, "; %d dropped, %d skipped\n", s.GetDropped(), s.GetSkipped())
	if was := s.GetFuel(); was > 0 {
		fmt.Fprintf(w, "fuel of the compared commands: %d by the active module, %d by the shadow module (%+.1f%%)\n", was, s.GetShadowFuel(), (float64(s.GetShadowFuel())/float64(was)-1)*100)
	}
	if n := s.GetMissingNodeCount(); n > 0 {
		fmt.Fprintln(w, silentText(n, "compared"))
	}
	if s.GetNote() != "" {
		fmt.Fprintln(w, cli.Clean(s.GetNote()))
	}
	if len(s.GetExamples()) == 0 {
		return
	}
	cli.Table(w, "ENTITY\tAFTER\tCOMMAND\tDIFFERS IN\tFAULT", func(row func(...any)) {
		for _, e := range s.GetExamples() {
			row(e.GetEntityId(), e.GetSequence(), e.GetCommand(), strings.Join(e.GetKinds(), ","), e.GetFault())
		}
	})
}
