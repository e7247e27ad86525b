// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// Report adds the backend's part to what an agent tells of itself.
func (b *Backend) Report(s *agentapi.Status) {
	info, left := b.vswitch.known(), b.reconciler.unmet()
	s.OVS = agentapi.OVSStatus{
		Version: info.Version.String(), Bridge: b.Config.Bridge, Datapath: string(b.Intent.State().Local().Datapath),
		Connected: b.flows.connected(),
	}
	s.Sync, s.Host = b.flows.status(), agentapi.HostStatus(b.host.kernel.Status())
	for _, p := range b.flows.problems() {
		s.Problems = append(s.Problems, p.Error())
	}
	s.Refused = b.refusals.list()
	for _, r := range s.Refused {
		s.Problems = append(s.Problems, r.String())
	}
	if left != "" {
		s.Problems = append(s.Problems, strings.Split(left, "\n")...)
	}
	if waiting, err := b.tracking.flusher.Status(); err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("%d addresses of pods that are gone are kept: %v", waiting, err))
	}
	if err := b.tracking.limiter.Problem(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	if !b.policed() {
		return
	}
	state := b.flows.effective()
	s.Policies.Rules, s.Policies.Subjects, s.Policies.Peers = state.Rules().Len(), state.Subjects().Len(),
		state.Peers().Len()
	s.Policies.Closed = closed(state, b.Node)
}

// closed are a node's Ports that are closed.
func closed(state *intent.State, node string) (list []agentapi.ClosedPort) {
	reasons := pipeline.Closed(state, node)
	for port := range state.PortsAt(node) {
		if reason := reasons[port.ID]; reason != "" {
			list = append(list, agentapi.ClosedPort{Port: port.Name(), Reason: reason})
		}
	}
	return list
}

// ServiceProblems are what of Services the flows do not have, by namespace/name.
func (b *Backend) ServiceProblems() map[string][]string {
	problems := map[string][]string{}
	for _, p := range b.flows.problems() {
		if key, ok := strings.CutPrefix(p.Owner, "service/"); ok {
			problems[key] = append(problems[key], p.Text)
		}
	}
	return problems
}

// list are all attachments, with what Open vSwitch has of each.
func (p *ports) list(ctx context.Context) ([]agentapi.PortInfo, error) {
	have, err := p.db.Ports(ctx)
	if err != nil {
		return nil, err
	}
	guests, err := p.db.Interfaces(ctx, p.bridge, idInterface)
	if err != nil {
		return nil, err
	}
	states := byName(append(have, guests...))
	infos := []agentapi.PortInfo{}
	for _, at := range p.attachments.List() {
		st, ok := states[podPort(at).Name]
		info := agentapi.PortInfo{
			Attachment: at, Ready: st.Ready() && st.Actual == int(at.OFPort), Actual: st.Actual, Error: st.Error,
		}
		if !ok {
			info.Error = "not in the database"
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(x, y agentapi.PortInfo) int { return cmp.Compare(x.PodRef(), y.PodRef()) })
	return infos, nil
}
