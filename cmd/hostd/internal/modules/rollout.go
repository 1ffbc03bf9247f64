package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/sharding"
)

// Part is the part of a type that a module is to serve, as flags set it.
type Part struct {
	Plan *modulev1.RolloutPlan // nil means all

	percent float64
	prefix  string
	steps   []float64
	pause   time.Duration
	rules   string
}

// Flags adds the flags to a command.
func (p *Part) Flags(c *cobra.Command) {
	c.Flags().Float64Var(&p.percent, "percent", 0, "roll out to this `percent` of the entities, chosen by a hash of type and id, in steps of 0.01; later calls can raise it")
	c.Flags().Float64SliceVar(&p.steps, "steps", nil, "comma-separated `percentages` to roll out to, one after the other with --pause between them; 100 serves all entities")
	c.Flags().DurationVar(&p.pause, "pause", 10*time.Minute, "`time` between two --steps")
	c.Flags().StringVar(&p.rules, "abort", "", "abort the rollout automatically if one of these comma-separated `rules` matches, such as faults>0,rejections>+20%,p99>+50%; the value of faults and rejections is a count, a percentage of commands, or +N% relative to the active module; the value of p99, the latency in the guest, is a duration or +N%")
	c.Flags().StringVar(&p.prefix, "prefix", "", "also roll out to entities whose ids start with this `text`")
}

// Parse checks the flags after they are read.
func (p *Part) Parse(c *cobra.Command, limits bool) error {
	percent, prefix, steps := c.Flags().Changed("percent"), c.Flags().Changed("prefix"), c.Flags().Changed("steps")
	rules := c.Flags().Changed("abort")
	p.Plan = nil
	switch {
	case !percent && !prefix && !steps && !rules && !c.Flags().Changed("pause"):
		return nil
	case rules && !percent && !prefix && !steps:
		return cli.Usagef("--abort needs a part of the entities: --percent, --prefix or --steps")
	case limits:
		return cli.Usagef("--limit applies to the whole type and cannot be combined with a rollout: change it before or after")
	case prefix && p.prefix == "":
		return cli.Usagef("--prefix must not be empty")
	case percent && steps:
		return cli.Usagef("--steps includes the first percentage: omit --percent")
	case !steps && c.Flags().Changed("pause"):
		return cli.Usagef("--pause needs --steps")
	}
	shares := p.steps
	if percent {
		shares = []float64{p.percent}
	}
	if _, err := trial.ParseRules(p.rules); err != nil || rules && p.rules == "" {
		return cli.Usagef("--abort: %v", cmp.Or(err, errors.New("no rule is set")))
	}
	plan := &modulev1.RolloutPlan{Prefix: p.prefix, Rules: p.rules}
	for i, one := range shares {
		share := math.Round(one * sharding.Buckets / 100)
		all := i > 0 && i == len(shares)-1 && share == sharding.Buckets
		switch {
		case !(share >= 1) || share >= sharding.Buckets && !all:
			return cli.Usagef("a percentage must be between 0.01 and 99.99, or 100 as the last of --steps, got %v; to serve all entities, omit the flags or run 'hostd module rollout TYPE --promote'", one)
		case i == 0:
			plan.Share = uint32(share)
		default:
			plan.Steps = append(plan.Steps, uint32(share))
		}
	}
	if len(plan.Steps) > 0 {
		plan.Pause = durationpb.New(p.pause)
	} else if steps {
		return cli.Usagef("--steps needs at least two percentages: use --percent for one")
	}
	p.Plan = plan
	return nil
}

// partText describes the part of a type that a module serves.
func partText(share uint32, prefix string) string {
	var out []string
	if share > 0 {
		out = append(out, sharding.Percent(share))
	}
	if prefix != "" {
		out = append(out, cli.Clean(prefix)+"*")
	}
	return cmp.Or(strings.Join(out, " and "), "none")
}

// rolloutView is the rollout of a type as it is printed.
type rolloutView struct {
	*cli.Object
	rollout *modulev1.Rollout
	shadow  *modulev1.Shadow
	all     string // the type, if one module serves all of it
	aborted string // how the last rollout was aborted
}

func viewRollout(entityType string, now *modulev1.GetRolloutResponse) rolloutView {
	r, shadow := now.GetRollout(), now.GetShadow()
	v := rolloutView{rollout: r, shadow: shadow, aborted: now.GetAborted()}
	if r == nil {
		v.all, v.Object = entityType, cli.View(&modulev1.Rollout{EntityType: entityType}).Set("state", "over")
	} else {
		v.Object = cli.View(r).Set("state", stateOf(r))
	}
	if shadow != nil {
		v.Set("shadow", cli.View(shadow))
	}
	if v.aborted != "" {
		v.Set("aborted", v.aborted)
	}
	return v
}

func stateOf(r *modulev1.Rollout) string { return stateName(r.GetState()) }

func stateName(s modulev1.Rollout_State) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_"))
}

// printCounts prints the counts of a module since the rollout began.
func printCounts(w io.Writer, which string, c *modulev1.VersionCounts) {
	fmt.Fprintf(w, "%s: %d commands, %d rejections, %d faults", which, c.GetCommands(), c.GetRejections(), c.GetFaults())
	if c.GetCommands() > 0 {
		fmt.Fprintf(w, ", 99%% within %v", c.GetP99().AsDuration().Round(time.Microsecond))
	}
	fmt.Fprintln(w)
}

// stepsText describes the remaining shares and when they are due. A step that
// is due waits for the node that performs the steps, for example until another
// node takes over from a failed one.
func stepsText(r *modulev1.Rollout, now time.Time) string {
	steps := make([]string, len(r.GetSteps()))
	for i, share := range r.GetSteps() {
		steps[i] = partText(share, "")
	}
	text := "then " + strings.Join(steps, ", ") + ", " + r.GetPause().AsDuration().String() + " apart"
	switch {
	case r.GetDueAt() == nil:
		return text
	case r.GetDueAt().AsTime().Before(now):
		return text + "; the next step is due"
	}
	return text + "; the next step at " + r.GetDueAt().AsTime().UTC().Format(time.DateTime)
}

// silentText describes how many nodes, at least one, did not report.
func silentText(nodes uint32, did string) string {
	if nodes == 1 {
		return "1 node did not report what it " + did
	}
	return fmt.Sprintf("%d nodes did not report what they %s", nodes, did)
}

// actions are the actions of rollout's flags.
var actions = []struct {
	name, usage string
	action      modulev1.ChangeRolloutRequest_Action
}{
	{"pause", "pause the rollout before its next step", modulev1.ChangeRolloutRequest_ACTION_PAUSE},
	{"resume", "resume the steps of a paused rollout", modulev1.ChangeRolloutRequest_ACTION_RESUME},
	{"promote", "serve all entities with the new module", modulev1.ChangeRolloutRequest_ACTION_PROMOTE},
	{"abort", "return its entities to the old module, except entities that the old module cannot load, or end its verification", modulev1.ChangeRolloutRequest_ACTION_ABORT},
}

// NewRollout returns the command that shows or changes a rollout.
func NewRollout(std cli.Stdio) *cobra.Command {
	var force bool
	wanted := make([]bool, len(actions))
	action := modulev1.ChangeRolloutRequest_ACTION_UNSPECIFIED
	c := cli.Ask(std, "rollout TYPE", "Show, pause, resume, promote or abort the rollout of an entity type", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (rolloutView, error) {
		if action == modulev1.ChangeRolloutRequest_ACTION_UNSPECIFIED {
			res, err := client.RolloutState(ctx, s.Client, args[0])
			return viewRollout(args[0], res), err
		}
		res, err := client.ChangeRollout(ctx, s.Client, &modulev1.ChangeRolloutRequest{EntityType: args[0], Action: action, Force: force})
		return viewRollout(args[0], &modulev1.GetRolloutResponse{Rollout: res.GetRollout()}), err
	}, func(w io.Writer, v rolloutView) {
		defer writeShadow(w, v.shadow)
		r := v.rollout
		if r == nil {
			fmt.Fprintf(w, "%s has no rollout\n", cli.Clean(v.all))
			if v.aborted != "" {
				fmt.Fprintln(w, cli.Clean(v.aborted))
			}
			return
		}
		switch r.GetState() {
		case modulev1.Rollout_STATE_VERIFYING:
			fmt.Fprintf(w, "%s is being compared with the truncated histories of %s and will serve it afterwards; %s serves it now: verifying\n", r.GetDigest(), cli.Clean(r.GetEntityType()), r.GetOlderDigest())
			return
		case modulev1.Rollout_STATE_REJECTED:
			fmt.Fprintf(w, "%s was not activated for %s, %s serves it: rejected\n%s\n", r.GetDigest(), cli.Clean(r.GetEntityType()), r.GetOlderDigest(), cli.Clean(r.GetNote()))
			return
		}
		fmt.Fprintf(w, "%s of %s is served by %s, the rest by %s: %s\n", partText(r.GetShare(), r.GetPrefix()), cli.Clean(strings.Join(r.GetEntityTypes(), ", ")), r.GetDigest(), r.GetOlderDigest(), stateOf(r))
		if len(r.GetSteps()) > 0 {
			fmt.Fprintln(w, stepsText(r, time.Now()))
		}
		if r.GetRules() != "" {
			fmt.Fprintln(w, "the cluster aborts it if: "+cli.Clean(r.GetRules()))
		}
		if r.GetNewer() != nil {
			printCounts(w, "newer", r.GetNewer())
			printCounts(w, "older", r.GetOlder())
		}
		if n := r.GetMissingNodeCount(); n > 0 {
			fmt.Fprintln(w, silentText(n, "counted"))
		}
		if r.GetNote() != "" {
			fmt.Fprintln(w, cli.Clean(r.GetNote()))
		}
		for _, id := range r.GetRemainingEntityIds() {
			fmt.Fprintf(w, "stays: %s\n", cli.Clean(id))
		}
		if len(r.GetRemainingEntityIds()) > 0 {
			fmt.Fprintln(w, "They stay until a different module serves them or the rollout is promoted (--promote). With --abort --force they return to the old module and fail.")
		}
	})
	for i, a := range actions {
		c.Flags().BoolVar(&wanted[i], a.name, false, a.usage)
	}
	c.Flags().BoolVar(&force, "force", false, "with --abort: also return entities that the old module cannot load; those entities will fail")
	cli.Before(c, func([]string) error {
		action = modulev1.ChangeRolloutRequest_ACTION_UNSPECIFIED
		for i, a := range actions {
			if wanted[i] && action != modulev1.ChangeRolloutRequest_ACTION_UNSPECIFIED {
				return cli.Usagef("set only one of --pause, --resume, --promote and --abort")
			}
			if wanted[i] {
				action = a.action
			}
		}
		if force && action != modulev1.ChangeRolloutRequest_ACTION_ABORT {
			return cli.Usagef("--force needs --abort")
		}
		return nil
	})
	return c
}
