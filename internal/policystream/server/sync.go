// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
)

// Service answers calls about a Hub.
type Service struct {
	wire.UnimplementedPoliciesServer
	hub     *Hub
	auth    Authenticator
	metrics *metrics
	places  *places
	// configured are the streams of Configuration.
	configured *places
	instance   string
	age        time.Duration // of an agent's stream
}

// NewService makes a Service with metrics that are not registered anywhere.
func NewService(h *Hub, auth Authenticator) *Service { return newService(h, auth, newMetrics(h)) }

func newService(h *Hub, auth Authenticator, m *metrics) *Service {
	return &Service{hub: h, auth: auth, metrics: m, places: newPlaces(), configured: newPlaces(),
		instance: rand.Text(), age: streamAge}
}

// streamAge is how long an agent has one stream, a tenth more or less. Its token and the name of
// its node are checked again when it comes back, and a controller that has lost the API server
// has lost its agents by then.
const streamAge = 10 * time.Minute

// SetStreamAge is for tests that do not wait so long.
func (s *Service) SetStreamAge(d time.Duration) { s.age = d }

// caller authenticates the caller.
func (s *Service) caller(ctx context.Context) (Caller, error) {
	token, err := tokenOf(ctx)
	if err != nil {
		s.metrics.reviewed(err)
		return Caller{}, err
	}
	c, err := s.auth.Authenticate(ctx, token)
	s.metrics.reviewed(err)
	return c, err
}

// Sync implements wire.PoliciesServer.
func (s *Service) Sync(stream wire.Policies_SyncServer) error {
	who, err := s.caller(stream.Context())
	if err != nil {
		return err
	}
	if who.Node == "" {
		return status.Error(codes.PermissionDenied, "only an agent has a view of policies")
	}
	defer authenticated(stream.Context())()
	away := s.hub.leaving()
	taken, leave := s.places.enter(who.Node)
	defer leave()
	age := s.newAge()
	defer age.Stop()
	// What serves may wait for the agent for long. It ends with the call.
	ended := make(chan error, 1)
	go func() { ended <- s.serve(stream, who.Node) }()
	select {
	case err := <-ended:
		return err
	case <-taken:
		return errNewerStream()
	case <-away:
		return errAway()
	case <-age.C:
		return errAge()
	}
}

// newAge fires when a stream that begins now has lasted long enough.
func (s *Service) newAge() *time.Timer {
	const jitter = 10
	return time.NewTimer(s.age - s.age/jitter + mathrand.N(2*s.age/jitter+1))
}

// Why a controller ends a stream.
func errNewerStream() error {
	return status.Error(codes.ResourceExhausted, "there are newer streams of the node")
}

func errAway() error {
	return status.Error(codes.Unavailable, "this controller is behind: ask another one")
}

func errAge() error {
	return status.Error(codes.Unavailable, "the stream has lasted long enough: come again")
}

// serve sends a node's agent what it has to know until the stream ends.
func (s *Service) serve(stream wire.Policies_SyncServer, node string) error {
	has, basis, err := inventory(stream)
	if err != nil {
		return err
	}
	rewound, err := s.hub.catchUp(stream.Context(), basis)
	if err != nil {
		s.metrics.behind.Inc()
		return err
	}
	a, detach, ok := s.hub.attach(node)
	if !ok {
		return status.Error(codes.Unavailable, "this controller does not know all policies yet")
	}
	defer detach()
	ended := make(chan error, 1)
	go func() { ended <- s.receive(stream, a) }()
	out := &sender{stream: stream, metrics: s.metrics}
	if err := out.whole(a.first, has, a.firstBasis, rewound); err != nil {
		return err
	}
	a.first = policy.View{} // a stream lasts for long, and keeps nothing of what it has sent
	for {
		select {
		case <-a.wake:
		case err := <-ended:
			return err
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
		changes, version, basis := a.take()
		if len(changes) == 0 {
			continue
		}
		if err := out.change(changes, version, basis); err != nil {
			return err
		}
	}
}

// inventory is what the agent has, by digest, and what that was computed from.
func inventory(stream wire.Policies_SyncServer) (map[wire.Digest]struct{}, policy.Basis, error) {
	has := map[wire.Digest]struct{}{}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, nil, err
		}
		part := m.GetInventory()
		if part == nil {
			return nil, nil, status.Error(codes.InvalidArgument, "the inventory comes first")
		}
		list, err := wire.Digests(part.GetDigests())
		if err != nil {
			return nil, nil, status.Errorf(codes.InvalidArgument, "inventory: %v", err)
		}
		for _, d := range list {
			has[d] = struct{}{}
		}
		if len(has) > wire.MaxDigests {
			return nil, nil, status.Errorf(codes.InvalidArgument, "the inventory has more than %d digests",
				wire.MaxDigests)
		}
		if part.GetLast() {
			basis, err := wire.BasisOf(part.GetBasis())
			if err != nil {
				return nil, nil, status.Errorf(codes.InvalidArgument, "inventory: %v", err)
			}
			return has, basis, nil
		}
	}
}

// receive takes the agent's reports until it leaves.
func (s *Service) receive(stream wire.Policies_SyncServer, a *agent) error {
	limit := refusalLimit()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind := m.GetKind().(type) {
		case *wire.AgentMessage_Attached:
			attached, err := wire.AttachmentOf(kind.Attached)
			if err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			s.hub.attached(NodeAttachment{a.node, attached})
			s.hub.tally.pass(NodeAttachment{a.node, attached})
		case *wire.AgentMessage_Programmed:
			if !a.programmed(kind.Programmed.GetVersion()) {
				return status.Error(codes.InvalidArgument, "only a version that has been sent can be programmed")
			}
		case *wire.AgentMessage_Refused:
			refused, err := wire.RefusalsOf(kind.Refused)
			if err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			if err := limit.Wait(stream.Context()); err != nil {
				return status.FromContextError(err).Err()
			}
			a.refuse(refused)
		case *wire.AgentMessage_Inventory:
			return status.Error(codes.InvalidArgument, "the inventory has been sent")
		default: // an agent of a later release has more to say
		}
	}
}

// sender writes changes in parts.
type sender struct {
	stream  wire.Policies_SyncServer
	metrics *metrics
	part    *wire.Update
	size    int
}

// whole sends a view to an agent that has some of it.
func (s *sender) whole(v policy.View, has map[wire.Digest]struct{}, basis policy.Basis, rewound bool) error {
	s.part = &wire.Update{}
	put := func(item []byte) error {
		d := wire.DigestOf(item)
		if _, known := has[d]; known {
			delete(has, d)
			return nil
		}
		return s.item(item)
	}
	for _, r := range v.Rules {
		if err := put(wire.EncodeRule(r)); err != nil {
			return err
		}
	}
	for _, p := range v.Peers {
		if err := put(wire.EncodePeer(p)); err != nil {
			return err
		}
	}
	for _, x := range v.Subjects {
		if err := put(wire.EncodeSubject(x)); err != nil {
			return err
		}
	}
	for d := range has {
		s.part.Unknown = append(s.part.Unknown, d[:]...)
		if err := s.grown(wire.DigestSize); err != nil {
			return err
		}
	}
	s.part.Rewound = rewound
	return s.last(1, basis)
}

// change sends what is pending.
func (s *sender) change(changes map[wire.ID]any, version uint64, basis policy.Basis) error {
	s.part = &wire.Update{}
	for id, v := range changes {
		var err error
		switch v := v.(type) {
		case intent.Rule:
			err = s.item(wire.EncodeRule(v))
		case intent.Subject:
			err = s.item(wire.EncodeSubject(v))
		case intent.Peer:
			err = s.item(wire.EncodePeer(v))
		default:
			s.part.Gone = append(s.part.Gone, id.Message())
			err = s.grown(len(id.Key))
		}
		if err != nil {
			return err
		}
	}
	return s.last(version, basis)
}

func (s *sender) item(item []byte) error {
	s.part.Items = append(s.part.Items, item)
	return s.grown(len(item))
}

// grown sends a part that is large enough.
func (s *sender) grown(bytes int) error {
	if s.size += bytes; s.size < wire.MaxUpdate {
		return nil
	}
	return s.send()
}

// last ends a change.
func (s *sender) last(version uint64, basis policy.Basis) error {
	s.part.Version = version
	if basis != nil {
		s.part.Basis = wire.BasisMessage(basis)
	}
	return s.send()
}

func (s *sender) send() error {
	s.metrics.sent(len(s.part.GetItems()), s.size)
	err := s.stream.Send(s.part)
	s.part, s.size = &wire.Update{}, 0
	return err
}

// Realised implements wire.PoliciesServer.
func (s *Service) Realised(request *wire.ProgrammedRequest, stream wire.Policies_RealisedServer) error {
	ctx := stream.Context()
	who, err := s.caller(ctx)
	if err != nil {
		return err
	}
	if !who.Controller {
		return status.Error(codes.PermissionDenied, "only a controller may ask what is in effect on other nodes")
	}
	defer authenticated(ctx)()
	if request.GetInstance() == s.instance {
		return status.Error(codes.AlreadyExists, "a controller asks itself")
	}
	l := s.hub.tally.listen()
	defer s.hub.tally.unlisten(l)
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		report := &wire.ProgrammedReport{Instance: s.instance}
		news, attached, refused := s.hub.tally.take(l)
		for ref, n := range news {
			count := &wire.PolicyCount{Policy: wire.RefMessage(ref), Programmed: uint32(n)}
			report.Counts = append(report.Counts, count)
		}
		for _, a := range attached {
			report.Attached = append(report.Attached,
				&wire.NodeAttachment{Node: a.Node, Attachment: wire.AttachmentMessage(a.Attachment)})
		}
		for node, list := range refused {
			report.Refused = append(report.Refused,
				&wire.NodeRefusals{Node: node, Refusals: wire.RefusalsMessage(list)})
		}
		if err := stream.Send(report); err != nil {
			return err
		}
	}
}
