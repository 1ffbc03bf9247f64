package offline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// verifyModules checks the module files, and that there is one for each module
// in the metadata. view is nil if the node has no readable metadata. A missing
// file is a fault only on a lone node, because a member of a cluster fetches
// it from the other members.
func verifyModules(dir string, view *meta.View, out io.Writer) (faults int, err error) {
	digests, err := moduleFiles(filepath.Join(dir, datadir.ModulesDir), func(fault error) {
		fmt.Fprintf(out, "FAULT %s: %v\n", datadir.ModulesDir, fault)
		faults++
	})
	if err != nil {
		return faults, err
	}
	if view != nil {
		faults += missingModules(view, digests, out)
	}
	fmt.Fprintf(out, "%s: %d modules\n", datadir.ModulesDir, len(digests))
	return faults, nil
}

// moduleFiles lists the modules of a directory and calls damaged for each
// damaged module.
func moduleFiles(dir string, damaged func(error)) (digests []journal.Digest, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	modules, err := guest.OpenRegistry(guest.RegistryOptions{Dir: dir, ModuleBytes: 1 << 30, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	if digests, err = modules.List(); err != nil {
		return nil, err
	}
	for _, d := range digests {
		if _, err := modules.Get(d); err != nil {
			damaged(err)
		}
	}
	return digests, modules.Close()
}

// missingModules prints the modules that have no file.
func missingModules(view *meta.View, files []journal.Digest, out io.Writer) (faults int) {
	alone := len(view.Members()) <= 1
	for _, m := range view.Modules() {
		if slices.Contains(files, journal.Digest(m.Digest)) {
			continue
		}
		about := fmt.Sprintf("module file %s.wasm is missing (%s %s, of %s)", m.Digest, m.Name, m.Version, strings.Join(m.EntityTypes, ", "))
		if alone {
			fmt.Fprintf(out, "FAULT %s: %s: push the same file again when the node runs\n", datadir.ModulesDir, about)
			faults++
		} else {
			fmt.Fprintf(out, "note  %s: %s: the node fetches it from other nodes when it runs\n", datadir.ModulesDir, about)
		}
	}
	return faults
}
