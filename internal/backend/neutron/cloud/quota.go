// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
)

// Quota is how much of a resource a project has, and may have.
type Quota struct {
	Project, Resource string
	Used              int // with what calls under way have reserved
	Limit             int // negative: there is none
}

// quotaResources are those of which Clients make some, by their names in quotas.
var quotaResources = []string{
	"network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule",
}

// quotaReader reads quotas beside all other calls: none waits for it, and what it is refused is
// neither an outage nor a problem.
type quotaReader struct {
	api   *gophercloud.ServiceClient
	log   *slog.Logger
	calls func() // counts
	found func([]Quota)
	due   chan []string // the projects to read next, at most one list
	// last is what was read last, by project, and silent are projects of which the log says already
	// why that is not known.
	last   map[string][]Quota
	silent map[string]bool
}

func newQuotaReader(api *gophercloud.ServiceClient, o Options, calls func()) *quotaReader {
	return &quotaReader{
		api: api, log: o.Log, calls: calls, found: o.Quotas, due: make(chan []string, 1),
		last: map[string][]Quota{}, silent: map[string]bool{},
	}
}

// start has quotas be read until the returned function is called.
func (q *quotaReader) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { q.run(ctx) })
	return func() { cancel(); running.Wait() }
}

// ask has run read the quotas of projects in place of those that it has not come to. One goroutine
// calls it.
func (q *quotaReader) ask(projects []string) {
	if q.found == nil {
		return
	}
	select {
	case <-q.due:
	default:
	}
	q.due <- projects
}

// run reads what is asked for until ctx ends.
func (q *quotaReader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case projects := <-q.due:
			if all := q.readAll(ctx, projects); ctx.Err() == nil {
				q.found(all)
			}
		}
	}
}

// readAll returns the quotas of projects: of those that cannot be read now, what they were.
func (q *quotaReader) readAll(ctx context.Context, projects []string) (all []Quota) {
	var err error
	for _, p := range projects {
		if !Away(err) {
			err = q.update(ctx, p)
		}
		all = append(all, q.last[p]...)
	}
	return all
}

// update reads the quotas of a project. Its error is that of the call.
func (q *quotaReader) update(ctx context.Context, project string) error {
	list, err := q.read(ctx, project)
	if err == nil {
		q.last[project] = list
		delete(q.silent, project)
		return nil
	}
	var refused *refusal
	if errors.As(err, &refused) && (refused.gone || refused.forbidden) {
		delete(q.last, project)
	}
	if !q.silent[project] && ctx.Err() == nil {
		q.silent[project] = true
		q.log.Info("Neutron does not say how much of its quotas a project has used", "project", project, "err", err)
	}
	return err
}

// read asks for the quotas of a project, by the extension quota_details.
func (q *quotaReader) read(ctx context.Context, project string) (list []Quota, err error) {
	var answer struct {
		Quota map[string]struct{ Limit, Used, Reserved int }
	}
	q.calls()
	path := "quotas/" + url.PathEscape(project) + "/details"
	if err := send(ctx, q.api, http.MethodGet, path, nil, &answer); err != nil {
		return nil, err
	}
	for _, name := range quotaResources {
		if is, there := answer.Quota[name]; there {
			list = append(list, Quota{project, name, is.Used + is.Reserved, is.Limit})
		}
	}
	return list, nil
}
