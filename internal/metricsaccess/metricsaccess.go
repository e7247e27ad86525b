// SPDX-License-Identifier: Apache-2.0

// Package metricsaccess protects /metrics: a TokenReview authenticates the bearer token, a
// SubjectAccessReview authorizes its user to get the path. Any client may try, so the number of
// reviews is bounded.
package metricsaccess

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Access says which clients may read the metrics.
type Access string

// The answers.
const (
	// Those that the Kubernetes API authorizes to get /metrics, by HTTPS.
	Authorized Access = "authorized"
	Open       Access = "open" // all that reach the port, by HTTP
)

// Path is what clients have to be authorized for. It is a nonResourceURL of ClusterRoles.
const Path = "/metrics"

// Bounds of what clients can cause.
const (
	// An answer holds for a while: a client that has lost its rights reads on for so long.
	allowedFor = time.Minute
	deniedFor  = 30 * time.Second
	// knownFor is how long a client that was allowed is asked about again before strangers.
	knownFor  = time.Hour
	maxCached = 1024
	// Reviews of tokens that were not allowed lately.
	strangersPerSecond, strangersBurst = 5, 10
	reviewTimeout                      = 10 * time.Second
	maxToken                           = 16 << 10
)

// Guard protects handlers. It is safe for concurrent use.
type Guard struct {
	log     *slog.Logger
	tokens  authentication.TokenReviewInterface
	access  authorization.SubjectAccessReviewInterface
	reviews singleflight.Group
	// strangers bounds the reviews of tokens that are not in known.
	strangers *rate.Limiter
	// known are tokens that were allowed, answers the last answer for each; both by digest.
	known, answers *cache.LRUExpireCache
}

// NewGuard asks that API.
func NewGuard(log *slog.Logger, tokens authentication.TokenReviewInterface,
	access authorization.SubjectAccessReviewInterface,
) *Guard {
	return &Guard{
		log: log, tokens: tokens, access: access, strangers: rate.NewLimiter(strangersPerSecond, strangersBurst),
		known: cache.NewLRUExpireCache(maxCached), answers: cache.NewLRUExpireCache(maxCached),
	}
}

// refusal is an answer other than the metrics.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// Protect lets requests of Path reach the handler if their client is authorized. Requests
// of other paths pass.
func (g *Guard) Protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path {
			h.ServeHTTP(w, r)
			return
		}
		err := g.check(r)
		var no *refusal
		switch {
		case err == nil:
			h.ServeHTTP(w, r)
		case errors.As(err, &no):
			if no.code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, no.text, no.code)
		default:
			g.log.Warn("cannot authenticate or authorize a client of /metrics", "err", err)
			http.Error(w, "the Kubernetes API does not say whether the client is authorized",
				http.StatusServiceUnavailable)
		}
	})
}

// check returns nil for a client that may read the metrics, a *refusal for one that may not, and
// another error if it is not known.
func (g *Guard) check(r *http.Request) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > maxToken {
		return &refusal{http.StatusUnauthorized, "the request has no bearer token"}
	}
	digest := sha256.Sum256([]byte(token))
	if answer, ok := g.answers.Get(digest); ok {
		return denied(answer.(*refusal))
	}
	if _, known := g.known.Get(digest); !known && !g.strangers.Allow() {
		return &refusal{http.StatusTooManyRequests, "too many tokens wait to be reviewed, try again"}
	}
	// Other requests wait for the same answer, so it does not end with this one.
	answer, err, _ := g.reviews.Do(string(digest[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reviewTimeout)
		defer cancel()
		no, err := g.review(ctx, token)
		switch {
		case err != nil:
		case no != nil:
			g.known.Remove(digest)
			g.answers.Add(digest, no, deniedFor)
		default:
			g.known.Add(digest, true, knownFor)
			g.answers.Add(digest, no, allowedFor)
		}
		return no, err
	})
	if err != nil {
		return err
	}
	return denied(answer.(*refusal))
}

// denied is a refusal as an error; none is nil.
func denied(r *refusal) error {
	if r == nil {
		return nil
	}
	return r
}

// review asks the API. The refusal is nil for a client that is authorized.
func (g *Guard) review(ctx context.Context, token string) (*refusal, error) {
	who, err := g.tokens.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review of the token: %w", err)
	}
	if !who.Status.Authenticated {
		return &refusal{http.StatusUnauthorized, "the Kubernetes API does not know the token"}, nil
	}
	user := who.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	may, err := g.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: Path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review of what %s may do: %w", user.Username, err)
	}
	if !may.Status.Allowed {
		return &refusal{http.StatusForbidden,
				user.Username + " is not authorized to get " + Path +
					": bind it to the ClusterRole coelan-metrics-reader"},
			nil
	}
	return nil, nil
}
