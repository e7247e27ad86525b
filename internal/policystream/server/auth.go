// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/policystream/wire"
)

// The service accounts that may call, in Coelan's namespace.
const (
	agentAccount      = "coelan-agent"
	controllerAccount = "coelan-controller"
)

// nodeNameClaim is what the API server says of a token that is bound to a pod: the node that the
// pod is on.
const nodeNameClaim = "authentication.kubernetes.io/node-name"

// Caller is the owner of a token: the agent of a node, or a controller.
type Caller struct {
	Node       string
	Controller bool
}

// Authenticator authenticates callers. Its errors are those of gRPC: Unauthenticated or
// PermissionDenied for good, Unavailable if it could not find out.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Caller, error)
}

// maxToken is more than any token has.
const maxToken = 16 << 10

// maxReviews are under way at a time: everything that reaches the port can cause them.
const maxReviews = 32

// reviewTimeout is for the wait for others and the answer. What an API server that does not answer
// holds up ends at last.
const reviewTimeout = 10 * time.Second

// Reviewer asks the API server. It remembers no answer: a token is good until its pod is gone.
type Reviewer struct {
	api       authenticationclient.TokenReviewInterface
	namespace string
	slots     chan struct{}
	refused   func() // is called for each token that is refused without a review
}

// NewReviewer takes the service accounts of that namespace.
func NewReviewer(api authenticationclient.TokenReviewInterface, namespace string) *Reviewer {
	return &Reviewer{api: api, namespace: namespace, slots: make(chan struct{}, maxReviews), refused: func() {}}
}

// Authenticate implements Authenticator.
func (r *Reviewer) Authenticate(ctx context.Context, token string) (Caller, error) {
	if token == "" || len(token) > maxToken {
		return Caller{}, status.Error(codes.Unauthenticated, "the call has no token")
	}
	// A review costs a place that agents wait for, and a request. Most garbage
	// is recognized without one.
	looked, err := parseToken(token)
	if err == nil {
		err = looked.plausible(r.namespace, time.Now())
	}
	if err != nil {
		r.refused()
		return Caller{}, status.Errorf(codes.Unauthenticated, "the token is not reviewed: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return Caller{}, status.Error(codes.Unavailable, "too many tokens wait to be reviewed")
	}
	review := &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{wire.Audience}},
	}
	answer, err := r.api.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return Caller{}, status.Error(codes.Unavailable,
			fmt.Sprintf("the API server does not review the token: %v", err))
	}
	// An API server that knows nothing of audiences names none.
	if s := answer.Status; !s.Authenticated || !slices.Contains(s.Audiences, wire.Audience) {
		return Caller{}, status.Error(codes.Unauthenticated, "the API server does not know the token: "+s.Error)
	}
	return r.caller(answer.Status.User)
}

func (r *Reviewer) caller(user authenticationv1.UserInfo) (Caller, error) {
	name, isAccount := strings.CutPrefix(user.Username, "system:serviceaccount:"+r.namespace+":")
	switch {
	case isAccount && name == controllerAccount:
		return Caller{Controller: true}, nil
	case isAccount && name == agentAccount:
		node := user.Extra[nodeNameClaim]
		if len(node) != 1 || node[0] == "" {
			return Caller{}, status.Error(codes.PermissionDenied,
				"the token is not bound to a pod on a node: it has to be a projected one of the agent's pod")
		}
		return Caller{Node: node[0]}, nil
	}
	return Caller{}, status.Errorf(codes.PermissionDenied, "%s may not ask for policies", user.Username)
}

// tokenOf is the call's.
func tokenOf(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return "", status.Error(codes.Unauthenticated, "the call has no token")
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return "", status.Error(codes.Unauthenticated, "the call has no token")
	}
	return token, nil
}
