package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

const (
	completePatience = 2 * time.Second // timeout of the nodes' answer
	completeMost     = 100             // maximum number of offered ids
)

// completeArgs completes the arguments of a command that calls nodes, by their
// names in its usage line: TYPE, ID, NODE, DIGEST, COMMAND and QUERY are looked
// up in the cluster, FILE is a file. If no node answers, it offers nothing.
func completeArgs(c *cobra.Command, r *Remote) {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		names := strings.FieldsFunc(c.Use, func(r rune) bool { return strings.ContainsRune(" []", r) })[1:]
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		name := names[len(args)]
		if strings.HasPrefix(name, "FILE") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(c.Context(), completePatience)
		defer cancel()
		r.Timeout = min(r.Timeout, completePatience)
		if r.useContext(c) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, err := r.Open(ctx, Stdio{Out: io.Discard, Err: io.Discard})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer s.Close()
		var found []string
		for _, n := range strings.Split(name, "|") {
			found = append(found, s.completeArgument(ctx, n, args, begun)...)
		}
		found = slices.DeleteFunc(found, func(f string) bool { return !strings.HasPrefix(f, begun) })
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArgument asks the cluster for the possible values of an argument that follows
// others.
func (s *Session) completeArgument(ctx context.Context, name string, before []string, begun string) (found []string) {
	switch name {
	case "TYPE", "DIGEST":
		modules, err := s.Modules(ctx)
		if err != nil {
			return nil
		}
		for _, m := range modules {
			if name == "TYPE" {
				found = append(found, m.GetActiveFor()...)
			} else {
				found = append(found, m.GetDigest())
			}
		}
	case "ID":
		if len(before) == 0 {
			return nil
		}
		for e, err := range s.List(ctx, &entityv1.ListEntitiesRequest{EntityType: before[0], IdPrefix: begun}) {
			if err != nil || len(found) == completeMost {
				break
			}
			found = append(found, e.GetEntityId())
		}
	case "COMMAND", "QUERY":
		m, err := s.ActiveModule(ctx, First(before))
		if err != nil {
			return nil
		}
		list := map[string]string{"COMMAND": "commands", "QUERY": "queries"}[name]
		for _, t := range m.GetManifest().GetFields()["entityTypes"].GetListValue().GetValues() {
			f := t.GetStructValue().GetFields()
			if f["name"].GetStringValue() != First(before) {
				continue
			}
			for _, v := range f[list].GetListValue().GetValues() {
				found = append(found, v.GetStructValue().GetFields()["name"].GetStringValue())
			}
		}
	case "NODE":
		cluster, err := s.Cluster(ctx)
		if err != nil {
			return nil
		}
		for _, m := range cluster.GetMembers() {
			found = append(found, m.GetNodeId())
		}
	}
	return found
}
