// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	clienttesting "k8s.io/client-go/testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/policystream/wire"
)

func TestReviewer(t *testing.T) {
	const account = "system:serviceaccount:coelan-system:"
	user := func(name string, nodes ...string) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: []string{wire.Audience}, User: authenticationv1.UserInfo{
				Username: name, Extra: map[string]authenticationv1.ExtraValue{nodeNameClaim: nodes},
			},
		}
	}
	otherAudience, noAudience := user(account+"coelan-agent", "a"), user(account+"coelan-agent", "a")
	otherAudience.Audiences, noAudience.Audiences = []string{"https://kubernetes.default.svc"}, nil
	token := plausibleToken("a")
	unknown := user(account+"coelan-agent", "a")
	unknown.Authenticated = false
	for name, tc := range map[string]struct {
		token  string
		status authenticationv1.TokenReviewStatus
		err    error
		want   Caller
		code   codes.Code
	}{
		"agent":                {token: token, status: user(account+"coelan-agent", "a"), want: Caller{Node: "a"}},
		"controller":           {token: token, status: user(account + "coelan-controller"), want: Caller{Controller: true}},
		"agent without node":   {token: token, status: user(account + "coelan-agent"), code: codes.PermissionDenied},
		"agent of two nodes":   {token: token, status: user(account+"coelan-agent", "a", "b"), code: codes.PermissionDenied},
		"agent of empty node":  {token: token, status: user(account+"coelan-agent", ""), code: codes.PermissionDenied},
		"another account":      {token: token, status: user(account+"default", "a"), code: codes.PermissionDenied},
		"another namespace":    {token: token, status: user("system:serviceaccount:default:coelan-agent", "a"), code: codes.PermissionDenied},
		"a longer namespace":   {token: token, status: user("system:serviceaccount:coelan-system:x:coelan-agent", "a"), code: codes.PermissionDenied},
		"a user":               {token: token, status: user("coelan-agent", "a"), code: codes.PermissionDenied},
		"unknown":              {token: token, status: unknown, code: codes.Unauthenticated},
		"for others":           {token: token, status: otherAudience, code: codes.Unauthenticated},
		"for nobody":           {token: token, status: noAudience, code: codes.Unauthenticated},
		"garbage":              {token: "t", status: user(account+"coelan-agent", "a"), code: codes.Unauthenticated},
		"none":                 {status: user(account+"coelan-agent", "a"), code: codes.Unauthenticated},
		"too long":             {token: strings.Repeat("t", maxToken+1), status: user(account+"coelan-agent", "a"), code: codes.Unauthenticated},
		"no answer of the API": {token: token, err: errors.New("connection refused"), code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset()
			api.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
				review, ok := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
				if !ok || review.Spec.Token != tc.token || len(review.Spec.Audiences) != 1 || review.Spec.Audiences[0] != wire.Audience {
					t.Errorf("review %+v", review)
				}
				return true, &authenticationv1.TokenReview{Status: tc.status}, tc.err
			})
			got, err := NewReviewer(api.AuthenticationV1().TokenReviews(), "coelan-system").Authenticate(t.Context(), tc.token)
			if got != tc.want || status.Code(err) != tc.code {
				t.Errorf("%+v, %v; want %+v, %s", got, err, tc.want, tc.code)
			}
		})
	}
}

// silent is an API server that takes reviews and does not answer.
type silent struct {
	authenticationclient.TokenReviewInterface
}

func (silent) Create(ctx context.Context, _ *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A caller that waits for an API server that does not answer gets an error, even if the request
// would never end.
func TestReviewsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReviewer(silent{}, "coelan-system")
		const callers = maxReviews + 10
		ended := make(chan error, callers)
		for range callers {
			go func() {
				_, err := r.Authenticate(t.Context(), plausibleToken("a"))
				ended <- err
			}()
		}
		start := time.Now()
		synctest.Wait()
		// All places are taken, and garbage waits for none.
		refused := 0
		r.refused = func() { refused++ }
		for _, garbage := range []string{"garbage", unsigned(`{"aud":["https://kubernetes.default.svc"]}`)} {
			if _, err := r.Authenticate(t.Context(), garbage); status.Code(err) != codes.Unauthenticated {
				t.Errorf("garbage: %v", err)
			}
		}
		if d := time.Since(start); d != 0 || refused != 2 {
			t.Errorf("%d tokens are refused without a review, after %s", refused, d)
		}
		for range callers {
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Errorf("error %v", err)
			}
		}
		if d := time.Since(start); d != reviewTimeout {
			t.Errorf("the calls lasted %s", d)
		}
	})
}
