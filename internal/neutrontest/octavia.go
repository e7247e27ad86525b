// SPDX-License-Identifier: Apache-2.0

package neutrontest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/neutronserver"
)

// Octavia is the API of Octavia with the provider ovn, beside a Server.
type Octavia struct {
	// Endpoint is its URL, which ends with a slash.
	Endpoint string

	server     neutronserver.Octavia
	config     string
	agent, api *process
}

// StartOctavia runs an Octavia beside a Server. It must be closed also after an error, unless it is
// nil.
func (s *Server) StartOctavia(ctx context.Context) (*Octavia, error) {
	listen, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	o := &Octavia{config: filepath.Join(s.server.Dir, "octavia.conf")}
	o.server = neutronserver.Octavia{
		Listen: listen, Dir: s.server.Dir, Database: s.server.Database, Neutron: s.Endpoint,
		Northbound: s.server.Northbound, Southbound: s.server.Southbound,
	}
	o.Endpoint = o.server.Endpoint()
	if err := errors.Join(
		os.WriteFile(o.config, []byte(o.server.Configuration()), 0o600), os.MkdirAll(o.server.Sockets(), 0o700),
	); err != nil {
		return nil, err
	}
	if o.agent, err = start(o.server.Agent(o.config), filepath.Join(s.server.Dir, "octavia-agent.log")); err != nil {
		return o, err
	}
	for _, socket := range o.server.AgentSockets() {
		err := o.agent.await(ctx, func(context.Context) error { _, err := os.Stat(socket); return err })
		if err != nil {
			return o, err
		}
	}
	if o.api, err = start(o.server.API(o.config), o.log()); err != nil {
		return o, err
	}
	return o, o.api.answers(ctx, o.server.Ready())
}

// Close ends it.
func (o *Octavia) Close() {
	o.api.stop()
	o.agent.stop()
}

func (o *Octavia) log() string { return filepath.Join(o.server.Dir, "octavia-api.log") }

// Log is the first error of the API's log, and its end, at most 8 kB each.
func (o *Octavia) Log() string { return end(o.log()) }

// answers returns when a URL answers 200.
func (p *process) answers(ctx context.Context, url string) error {
	return p.await(ctx, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}
