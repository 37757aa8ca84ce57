/* Causal attention in place: queries of packed rows over the blocks of the pool. No gather, no masks.
 *
 * Positions are taken in chunks that begin at multiples of CHUNK; from chunk to chunk the softmax is
 * rescaled. So all sums of a query run by absolute position, and its bits depend neither on how many
 * queries there are, nor on batch mates, chunks of the prompt, or threads. A position that a query
 * does not see enters nothing, whatever is in it. */
#include "paged.h"
#include "pool.h"
#include "attend_tiles.h"

enum {
  QUERIES = 48,    /* most queries of a block */
  FLOATS = 38400,  /* of scratch, on the stack: 150 KB */
  MOST_DIM = 4096
};

typedef struct {
  const md_layer *layer;
  const md_step *step;
  const void *q;
  md_strides q_at;
  void *out;
  int64_t heads, group;  /* query heads, and those that share a KV head */
  int64_t size, blocks;  /* queries of a block, and blocks of the longest row */
  int64_t window;
  float scaling, softcap;
} attend_args;

/* What a block of queries keeps while it goes through the chunks. */
typedef struct {
  int64_t count;
  seen sees[QUERIES];
  float most[QUERIES];   /* largest score so far */
  float scale[QUERIES];  /* what this chunk multiplies earlier sums by */
  float *sums;           /* [count, 16] of the weights, by lanes */
  float *q;              /* [count, key_dim], scaled */
  float *scores;         /* [count, SCORES], then weights */
  float *out;            /* [count, value_row] */
} block;

static const float NOTHING = -__builtin_inff();

/* The groups of a row from group `begin` to before `end`, and what to fetch behind the last keys: the
 * first values; behind the last values: keys of the next chunk, if there is one. */
static void find_groups(const attend_args *a, int64_t row, int64_t head, int64_t begin, int64_t end,
                        key_group *groups) {
  const md_layer *l = a->layer;
  const int64_t size = l->dtype == MD_BFLOAT16 ? 2 : 4, each = l->lanes / 16;
  const int32_t *table = a->step->table + row * a->step->width;
  for (int64_t g = begin; g < end; g++, groups++) {
    int64_t index = g / each, within = g % each * 16, left = l->block_size - within;
    int64_t page = (int64_t)table[index] * l->kv_heads + head;
    groups->first = index * l->block_size + within;
    groups->count = left < 16 ? left : 16;
    groups->keys = (const char *)l->keys + (page * l->key_dim * l->lanes + within) * size;
    groups->values = (const char *)l->values + (page * l->block_size + within) * l->value_row * size;
  }
  for (int64_t i = 0; i < SPAN; i++) {
    groups[i].keys = groups[i < end - begin ? i + begin - end : -1].values;
    groups[i].values = groups[-1].values;
  }
}

MD_INLINE void score(const attend_args *a, block *b, const key_group *groups, int64_t num,
                     int32_t dtype) {
  const int64_t dim = a->layer->key_dim, lanes = a->layer->lanes;
  const int64_t tiles = (b->count + TILE - 1) / TILE, rows = (b->count + tiles - 1) / tiles;
  /* A query's groups are taken SPAN by SPAN, so that their keys stay in the first cache for all tiles. */
  for (int64_t g = 0; g < num; g += SPAN) {
    const int64_t end = g + SPAN < num ? g + SPAN : num;
    for (int64_t i = 0; i < b->count; i += rows) {
      const int64_t n = b->count - i < rows ? b->count - i : rows;
      for (int64_t at = g, step; at < end; at += step)
        MD_TILES(n, score_tile, end - at, dtype, b->q + i * dim, dim, groups + at, lanes,
                 b->scores + i * SCORES + 16 * at)
    }
  }
}

/* Which lanes of a group a query sees. */
MD_INLINE seen lanes_of(seen sees, const key_group *group) {
  int64_t first = sees.first - group->first, last = sees.last - group->first;
  return (seen){first < 0 ? 0 : first, last < group->count ? last : group->count};
}

/* Turn query i's scores of a chunk into weights, relative to the largest score so far. */
static void soften(const attend_args *a, block *b, int64_t i, const key_group *groups, int64_t num) {
  float *scores = b->scores + i * SCORES;
  const v16 nothing = v16_set(NOTHING), cap = v16_set(a->softcap);
  v16 top = nothing;
  for (int64_t g = 0; g < num; g++) {
    const seen lanes = lanes_of(b->sees[i], groups + g);
    if (lanes.first >= lanes.last) continue;
    v16 x = v16_load(scores + 16 * g);
    if (a->softcap > 0) {
      x = v16_mul(v16_tanh(v16_div(x, cap)), cap);
      v16_store(scores + 16 * g, x);
    }
    if (lanes.last - lanes.first < 16) x = v16_select(m16_range(lanes.first, lanes.last), x, nothing);
    top = v16_max(top, x);
  }
  const float before = b->most[i], found = v16_largest(top), most = found > before ? found : before;
  const v16 base = v16_set(most == NOTHING ? 0.0f : most);
  float scale = 1.0f;
  if (before == NOTHING) {
    scale = 0.0f;
  } else if (before != most) {
    float lanes[16];
    v16_store(lanes, v16_exp(v16_sub(v16_set(before), base)));
    scale = lanes[0];
  }
  v16 sums = v16_mul(v16_load(b->sums + 16 * i), v16_set(scale));
  for (int64_t g = 0; g < num; g++) {
    const seen lanes = lanes_of(b->sees[i], groups + g);
    if (lanes.first >= lanes.last) continue;
    v16 x = v16_exp(v16_sub(v16_load(scores + 16 * g), base));
    if (lanes.last - lanes.first < 16)
      x = v16_select(m16_range(lanes.first, lanes.last), x, v16_zero());
    v16_store(scores + 16 * g, x);
    sums = v16_add(sums, x);
  }
  v16_store(b->sums + 16 * i, sums);
  b->scale[i] = scale;
  b->most[i] = most;
}

MD_INLINE void weigh(const attend_args *a, block *b, const key_group *groups, int64_t num,
                     int32_t dtype) {
  const int64_t row = a->layer->value_row, columns = row / 16;
  const int64_t tiles = (b->count + TILE - 1) / TILE, rows = (b->count + tiles - 1) / tiles;
  for (int64_t first = 0; first < columns; first += SPAN) {
    const int64_t end = first + SPAN < columns ? first + SPAN : columns;
    for (int64_t i = 0; i < b->count; i += rows) {
      const int64_t n = b->count - i < rows ? b->count - i : rows;
      for (int64_t c = first, step; c < end; c += step)
        MD_TILES(n, weigh_tile, end - c, dtype, b->scores + i * SCORES, b->scale + i, b->sees + i,
                 groups, num, 16 * c, row, b->out + i * row + 16 * c)
    }
  }
}

/* Queries `first` to `first + b->count - 1` of a row's, tokens before heads, of one KV head. */
MD_INLINE void attend_block(const attend_args *a, block *b, int64_t row, int64_t head, int64_t first,
                            int32_t dtype) {
  const md_layer *l = a->layer;
  const int64_t token = a->step->cu[row], start = a->step->starts[row], dim = l->key_dim;
  const v16 scaling = v16_set(a->scaling);
  for (int64_t i = 0; i < b->count; i++) {
    const int64_t query = first + i, at = query / a->group, position = start + at;
    const int64_t q = (token + at) * a->q_at.token + (head * a->group + query % a->group) * a->q_at.head;
    for (int64_t d = 0; d < dim; d += 16) {
      const int64_t n = dim - d < 16 ? dim - d : 16;
      v16_store_n(b->q + i * dim, d, v16_mul(v16_load_n(a->q, q + d, n, dtype), scaling), n, MD_FLOAT32);
    }
    const int64_t oldest = a->window > 0 ? position - a->window + 1 : 0;
    b->sees[i] = (seen){oldest < 0 ? 0 : oldest, position + 1};
    b->most[i] = NOTHING;
  }
  memset(b->sums, 0, (size_t)b->count * 16 * sizeof(float));
  memset(b->out, 0, (size_t)(b->count * l->value_row) * sizeof(float));

  const int64_t each = l->lanes / 16, oldest = b->sees[0].first, newest = b->sees[b->count - 1].last - 1;
  const int64_t end = newest / l->block_size * each + newest % l->block_size / 16 + 1;
  int64_t begin = oldest / l->block_size * each + oldest % l->block_size / 16;
  while (begin < end) {
    key_group groups[GROUPS + SPAN];
    const int64_t next = (begin / GROUPS + 1) * GROUPS, until = next < end ? next : end;
    find_groups(a, row, head, begin, until, groups);
    score(a, b, groups, until - begin, dtype);
    for (int64_t i = 0; i < b->count; i++) soften(a, b, i, groups, until - begin);
    weigh(a, b, groups, until - begin, dtype);
    begin = until;
  }

  for (int64_t i = 0; i < b->count; i++) {
    const int64_t query = first + i, at = token + query / a->group;
    const int64_t out = (at * a->heads + head * a->group + query % a->group) * l->value_dim;
    const v16 share = v16_set(1.0f / v16_sum(v16_load(b->sums + 16 * i)));
    for (int64_t d = 0; d < l->value_dim; d += 16) {
      const int64_t n = l->value_dim - d < 16 ? l->value_dim - d : 16;
      v16_store_n(a->out, out + d, v16_mul(v16_load(b->out + i * l->value_row + d), share), n, dtype);
    }
  }
}

static void attend_range(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  const attend_args *a = ctx;
  _Alignas(64) float scratch[FLOATS];
  block b;
  (void)thread;
  b.sums = scratch;
  b.scores = b.sums + 16 * a->size;
  b.out = b.scores + SCORES * a->size;
  b.q = b.out + a->layer->value_row * a->size;
  const int64_t rows = a->step->rows;
  for (int64_t item = begin; item < end; item++) {
    const int64_t row = item % rows, turn = item / rows % a->blocks, head = item / rows / a->blocks;
    /* Early blocks see few keys and late ones many: in turns, so that any range is about as much work. */
    const int64_t index = turn % 2 ? a->blocks - 1 - turn / 2 : turn / 2, first = index * a->size;
    const int64_t queries = (a->step->cu[row + 1] - a->step->cu[row]) * a->group;
    if (first >= queries) continue;
    b.count = queries - first < a->size ? queries - first : a->size;
    if (a->layer->dtype == MD_BFLOAT16)
      attend_block(a, &b, row, head, first, MD_BFLOAT16);
    else
      attend_block(a, &b, row, head, first, MD_FLOAT32);
  }
}

/* softmax(softcap(q k * scaling)) v of each token over its row's positions up to its own, and no more
 * than `window` of them (0: all). softcap 0: none. q: strides in elements; out [tokens, heads,
 * value_dim]. The step's keys and values are in the pool already. */
MD_EXPORT int32_t md_attend(md_pool *pool, const md_layer *layer, const md_step *step, const void *q,
                            int64_t q_token, int64_t q_head, int64_t heads, void *out, float scaling,
                            float softcap, int64_t window) {
  if (heads < 1 || heads % layer->kv_heads || layer->key_dim > MOST_DIM || layer->value_row > MOST_DIM)
    return MD_BAD_ARGUMENT;
  int64_t longest = 0;
  for (int64_t r = 0; r < step->rows; r++)
    if (step->cu[r + 1] - step->cu[r] > longest) longest = step->cu[r + 1] - step->cu[r];
  attend_args a = {layer, step, q, {q_token, q_head}, out, heads, heads / layer->kv_heads,
                   0,     0,    window, scaling, softcap};
  const int64_t fit = FLOATS / (16 + SCORES + layer->value_row + layer->key_dim);
  a.size = fit < QUERIES ? fit : QUERIES;
  a.blocks = (longest * a.group + a.size - 1) / a.size;
  md_parallel(pool, attend_range, &a, step->rows * a.blocks * layer->kv_heads, 1);
  return MD_OK;
}
