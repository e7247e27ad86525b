// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"errors"
	"fmt"

	"coelan.io/coelan/internal/agent/configuration"
	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/statefile"
)

// The agent's files in its state directory.
const (
	// State holds attachments and objects of the API.
	State = "state.db"
	// Services holds the intent's Services.
	Services = "services.json"
	// Policies holds the rules, subjects and peers that a controller sent last.
	Policies = "policies.db"
)

// Uninstall removes everything that Coelan has put on this node, its backend's part included, and
// says what it removed. The agent must not be running. While pods are attached it refuses, unless
// force is set: they lose their network. Every part is tried; the errors are joined. foreign are
// the attachments on bridges of external controllers.
func Uninstall(c config.Config, force bool, foreign []attachment.Attachment, ofBackend []backend.Removal) (
	done []string, err error,
) {
	store, err := attachment.Open(c.StateFile(State))
	if err != nil {
		return nil, err
	}
	attached := append(store.List(), foreign...)
	if err := store.Close(); err != nil {
		return nil, err
	}
	if len(attached) > 0 && !force {
		return nil, fmt.Errorf("%d pods are attached, the first is %s: drain the node, or use --force to cut them off",
			len(attached), attached[0].PodRef())
	}
	removals := []backend.Removal{{What: "CNI configuration and plugin", Do: func() error { return uninstallCNI(c) }}}
	removals = append(removals, ofBackend...)
	removals = append(removals,
		backend.Removal{What: "pods' interfaces", Do: func() error { return removeLinks(c) }},
		backend.Removal{What: "answers for load balancers' addresses", Do: announce.Remove},
		backend.Removal{What: "state in " + c.StateDir + " and sockets", Do: func() error { return removeState(c) }})
	for _, r := range removals {
		if e := r.Do(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.What, e))
			continue
		}
		done = append(done, "removed "+r.What)
	}
	return done, err
}

func removeLinks(c config.Config) error {
	p, err := podnet.New(c.SysctlDir)
	if err != nil {
		return err
	}
	defer p.Close()
	links, err := p.Existing()
	if err != nil {
		return err
	}
	var errs []error
	for name := range links {
		errs = append(errs, p.Remove(name))
	}
	return errors.Join(errs...)
}

// removeState removes the files by name: their directories may be shared.
func removeState(c config.Config) error {
	var errs []error
	for _, path := range []string{
		c.StateFile(State), c.StateFile(State + ".lock"), c.StateFile(Services), c.StateFile(Policies),
		c.StateFile(configuration.File), c.CNI.Socket, c.AgentSocket,
	} {
		errs = append(errs, statefile.Remove(path))
	}
	return errors.Join(errs...)
}
